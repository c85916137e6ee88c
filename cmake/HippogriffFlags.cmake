# Compiler flags, kept in two interface targets: `hippogriff_flags` for all our C++ code, and
# `hippogriff_portable_link` for binaries that must run on machines with older C++ libraries.

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  message(FATAL_ERROR "hippogriff wants g++ 12 or clang++ 14, or newer: not ${CMAKE_CXX_COMPILER}")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "hippogriff wants g++ 12 or newer: this is ${CMAKE_CXX_COMPILER_VERSION}")
endif()
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "hippogriff runs on Linux only")
endif()

# -g1 keeps backtraces readable at a tenth of -g's size.
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")
# What tests add to these: optimising GoogleTest's templates takes longer than running them, and twice
# as long with sanitizers. What is slow without is in the library of testing/, which is optimised.
set(hippogriff_test_options $<$<CONFIG:Release>:-O0>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Collecting garbage is a twelfth of compiling a test: not before there is a gibibyte.
  list(APPEND hippogriff_test_options --param=ggc-min-heapsize=1048576)
endif()
# A third of compiling a test, and a fifth of the library, is reading these.
set(hippogriff_precompiled "${PROJECT_SOURCE_DIR}/cmake/precompiled.hpp")
find_package(Threads REQUIRED)

add_library(hippogriff_flags INTERFACE)
target_include_directories(hippogriff_flags INTERFACE "${PROJECT_SOURCE_DIR}/src"
                                                      "${PROJECT_SOURCE_DIR}")
target_include_directories(hippogriff_flags INTERFACE
                           $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_definitions(hippogriff_flags INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64)
# Members left out of a designated initialiser have their defaults: that is what they are for.
target_compile_options(hippogriff_flags INTERFACE -Wall -Wextra -Wconversion
                                                  -Wno-missing-field-initializers
                                                  -fstack-protector-strong)
# Together, a local name may be that of another file's constant.
target_compile_options(hippogriff_flags
                       INTERFACE $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps in std::string's own concatenation (GCC bug 105651).
  target_compile_options(hippogriff_flags INTERFACE -Wno-restrict)
endif()
target_link_libraries(hippogriff_flags INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
if(HIPPOGRIFF_WERROR)
  target_compile_options(hippogriff_flags INTERFACE -Werror)
endif()

add_library(hippogriff_portable_link INTERFACE)

# Sanitizers reach every target, those of the workloads too: half-instrumented programs lie.
set(HIPPOGRIFF_HAS_FUZZERS OFF)
if(HIPPOGRIFF_SANITIZE STREQUAL "address")
  set(hippogriff_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Not checked: the types of functions found by name in drivers, where stand-ins have their own, and
    # virtual tables, for which the sanitizer wants descriptors where tests leave none.
    list(APPEND hippogriff_sanitizers -fno-sanitize=function,vptr)
    # What fuzzers are to find their way in: the library, of whose objects tests are made too, and
    # their own sources. Tests compile in two thirds of the time without.
    set(hippogriff_fuzzed -fsanitize=fuzzer-no-link)
    set(HIPPOGRIFF_HAS_FUZZERS ON)
  endif()
elseif(HIPPOGRIFF_SANITIZE STREQUAL "thread")
  # GCC warns that TSan does not model std::atomic_thread_fence; the warning is not an error.
  set(hippogriff_sanitizers -fsanitize=thread $<$<CXX_COMPILER_ID:GNU>:-Wno-error=tsan>)
elseif(HIPPOGRIFF_SANITIZE)
  message(FATAL_ERROR "HIPPOGRIFF_SANITIZE is address, thread or empty: not ${HIPPOGRIFF_SANITIZE}")
endif()
if(hippogriff_sanitizers)
  set(CMAKE_C_FLAGS_RELEASE "-O1 -g1")
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1 -D_GLIBCXX_ASSERTIONS")
  add_compile_options(${hippogriff_sanitizers} -fno-omit-frame-pointer)
  add_link_options(${hippogriff_sanitizers})
else()
  # The sanitizers' runtimes need the shared libstdc++; everything else carries its own, so that a
  # binary built on one distribution runs on an older one.
  target_link_options(hippogriff_portable_link INTERFACE
                      $<$<LINK_LANGUAGE:CXX>:-static-libstdc++> -static-libgcc)
endif()
