# Turns the folders of src/ into the library, one test binary per module, fuzzers and benchmarks.
# Files are found by their names: x.cpp, x_test.cpp, x_fuzz.cpp, x_bench.cpp.

set(hippogriff_modules base device storage node noded checksum transfer array)

# The .cpp files of src/<module> that end, or do not end, in one of the special suffixes.
function(hippogriff_module_sources module suffix result)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${module}/*.cpp")
  if(suffix)
    list(FILTER sources INCLUDE REGEX "_${suffix}\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "_(test|fuzz|bench)\\.cpp$")
  endif()
  set(${result} "${sources}" PARENT_SCOPE)
endfunction()

# liburing: its static library where that is position-independent, so that the machine that runs
# hippogriff needs none; else the shared one.
function(hippogriff_find_uring)
  find_path(HIPPOGRIFF_URING_INCLUDE liburing.h REQUIRED)
  find_library(HIPPOGRIFF_URING_STATIC liburing.a)
  find_library(HIPPOGRIFF_URING_SHARED uring)
  if(HIPPOGRIFF_URING_STATIC AND NOT DEFINED HIPPOGRIFF_URING_STATIC_IS_PIC)
    set(probe "${PROJECT_BINARY_DIR}/CMakeFiles/uring_probe")
    file(WRITE "${probe}.c" "#include <liburing.h>\nint probe(struct io_uring* ring);\n"
                            "int probe(struct io_uring* ring) { return io_uring_queue_init(1, ring, 0)"
                            " + io_uring_register_buffers(ring, 0, 0); }\n")
    execute_process(COMMAND "${CMAKE_C_COMPILER}" -shared -fPIC -Wl,-z,defs,-z,text
                            "-I${HIPPOGRIFF_URING_INCLUDE}" "${probe}.c"
                            "${HIPPOGRIFF_URING_STATIC}" -o "${probe}.so"
                    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
      set(HIPPOGRIFF_URING_STATIC_IS_PIC ON CACHE INTERNAL "liburing.a can go into a shared library")
    else()
      set(HIPPOGRIFF_URING_STATIC_IS_PIC OFF CACHE INTERNAL "liburing.a cannot be used")
    endif()
  endif()
  add_library(hippogriff_uring INTERFACE)
  target_include_directories(hippogriff_uring SYSTEM INTERFACE "${HIPPOGRIFF_URING_INCLUDE}")
  if(HIPPOGRIFF_URING_STATIC AND HIPPOGRIFF_URING_STATIC_IS_PIC)
    target_link_libraries(hippogriff_uring INTERFACE "${HIPPOGRIFF_URING_STATIC}")
  elseif(HIPPOGRIFF_URING_SHARED)
    target_link_libraries(hippogriff_uring INTERFACE "${HIPPOGRIFF_URING_SHARED}")
  else()
    message(FATAL_ERROR "liburing's library was not found (Debian: liburing-dev)")
  endif()
endfunction()

# xxHash's header, which holds all of it: nothing is linked.
function(hippogriff_find_xxhash)
  find_path(HIPPOGRIFF_XXHASH_INCLUDE xxhash.h)
  if(NOT HIPPOGRIFF_XXHASH_INCLUDE)
    message(FATAL_ERROR "xxhash.h was not found (Debian: libxxhash-dev)")
  endif()
  add_library(hippogriff_xxhash INTERFACE)
  target_include_directories(hippogriff_xxhash SYSTEM INTERFACE "${HIPPOGRIFF_XXHASH_INCLUDE}")
endfunction()

# What is compiled for some processors only: AVX2, AVX-512, and CUDA's kernels.
function(hippogriff_add_kernels)
  set(folder "${PROJECT_SOURCE_DIR}/src/checksum")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set_source_files_properties("${folder}/xxh3_avx2.cpp" PROPERTIES COMPILE_OPTIONS -mavx2
                                                                     SKIP_PRECOMPILE_HEADERS ON)
    set_source_files_properties("${folder}/xxh3_avx512.cpp"
                                PROPERTIES COMPILE_OPTIONS -mavx512f SKIP_PRECOMPILE_HEADERS ON)
  endif()
  hippogriff_add_cuda_image("${folder}/xxh3_image.cpp" HIPPOGRIFF_XXH3_IMAGE
                            "${folder}/xxh3_kernel.cu")
  set(folder "${PROJECT_SOURCE_DIR}/src/array")
  hippogriff_add_cuda_image("${folder}/row_kernels.cpp" HIPPOGRIFF_ROW_KERNELS
                            "${folder}/row_kernels.cu")
endfunction()

# Of the library's sources those that the shim includes, too.
set(hippogriff_shim_sources "/src/(base/(error|kernel_text|size)|device/nvml|node/[a-z_]+|noded/(command_variables|connection|connection_group|open_node|protocol|run_token|server_place|socket))\\.cpp")

# Which sources a unity build compiles together: a dozen of a module, those of the shim apart.
function(hippogriff_group_sources)
  foreach(module IN LISTS hippogriff_modules)
    hippogriff_module_sources(${module} "" sources)
    set(shim ${sources})
    list(FILTER shim INCLUDE REGEX "${hippogriff_shim_sources}")
    list(FILTER sources EXCLUDE REGEX "${hippogriff_shim_sources}")
    foreach(name shim sources)
      set(count 0)
      foreach(source IN LISTS ${name})
        math(EXPR dozen "${count} / 12")
        math(EXPR count "${count} + 1")
        set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${name}_${module}_${dozen}")
      endforeach()
    endforeach()
  endforeach()
endfunction()

# The objects, which tests link to reach what is inside, and libhippogriff.so made of them.
function(hippogriff_add_library)
  hippogriff_find_uring()
  hippogriff_find_xxhash()
  set(all_sources "")
  foreach(module IN LISTS hippogriff_modules)
    hippogriff_module_sources(${module} "" sources)
    list(APPEND all_sources ${sources})
  endforeach()
  if(NOT all_sources)
    message(FATAL_ERROR "src/ holds no sources")
  endif()
  add_library(hippogriff_objects OBJECT ${all_sources})
  target_compile_definitions(hippogriff_objects PRIVATE HIPPOGRIFF_BUILD)
  target_link_libraries(hippogriff_objects PUBLIC hippogriff_flags hippogriff_cuda_headers
                                                  hippogriff_uring hippogriff_xxhash)
  hippogriff_add_kernels()
  hippogriff_group_sources()
  set_target_properties(hippogriff_objects PROPERTIES CXX_VISIBILITY_PRESET hidden
                                                      VISIBILITY_INLINES_HIDDEN ON
                                                      UNITY_BUILD ${HIPPOGRIFF_UNITY}
                                                      UNITY_BUILD_MODE GROUP)
  target_compile_options(hippogriff_objects PRIVATE ${hippogriff_fuzzed})
  target_precompile_headers(hippogriff_objects PRIVATE ${hippogriff_precompiled})

  set(exports "${PROJECT_SOURCE_DIR}/cmake/exports.map")
  add_library(hippogriff SHARED $<TARGET_OBJECTS:hippogriff_objects>)
  add_library(hippogriff::hippogriff ALIAS hippogriff)
  target_include_directories(hippogriff PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(hippogriff PRIVATE $<BUILD_INTERFACE:hippogriff_uring>
                                           $<BUILD_INTERFACE:hippogriff_portable_link>
                                           Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(hippogriff PRIVATE "-Wl,--version-script=${exports}" -Wl,--gc-sections)
  if(NOT HIPPOGRIFF_SANITIZE)
    target_link_options(hippogriff PRIVATE -Wl,-z,defs)
  endif()
  set_target_properties(hippogriff PROPERTIES LINK_DEPENDS "${exports}" LINKER_LANGUAGE CXX
                                              INSTALL_RPATH "" VERSION ${PROJECT_VERSION}
                                              SOVERSION ${PROJECT_VERSION_MAJOR})
endfunction()

# Adds every folder/*/CMakeLists.txt; the target `programs` builds what the workloads define.
function(hippogriff_add_folders folder)
  file(GLOB lists CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*/CMakeLists.txt")
  foreach(list IN LISTS lists)
    cmake_path(GET list PARENT_PATH path)
    add_subdirectory("${path}")
    if(folder STREQUAL "workloads")
      get_property(targets DIRECTORY "${path}" PROPERTY BUILDSYSTEM_TARGETS)
      add_dependencies(programs ${targets})
    endif()
  endforeach()
endfunction()

# testing/*.cpp, the faults, as a library for tests and fuzzers; optimised, unlike the tests.
function(hippogriff_add_testing)
  file(GLOB support CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/testing/*.cpp")
  add_library(hippogriff_testing STATIC ${support})
  target_link_libraries(hippogriff_testing PUBLIC hippogriff_flags hippogriff_cuda_headers
                                                  hippogriff_uring)
endfunction()

# What every test includes, read once for all of them. A program of its own that nobody runs: what is
# precompiled may have no definitions that a test lacks, and some tests have theirs.
function(hippogriff_add_test_headers)
  set(source "${PROJECT_BINARY_DIR}/CMakeFiles/test_headers.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "")
  add_executable(hippogriff_test_headers EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(hippogriff_test_headers PRIVATE hippogriff_flags GTest::gtest_main)
  target_compile_options(hippogriff_test_headers PRIVATE ${hippogriff_test_options})
  target_precompile_headers(hippogriff_test_headers PRIVATE <gtest/gtest.h> ${hippogriff_precompiled})
endfunction()

# The library of testing/, testing/*/ as they say themselves, a test binary per module. Each test
# is a process of its own in ctest, so that a crash has a name and a skipped test is seen.
function(hippogriff_add_tests)
  hippogriff_add_test_headers()
  hippogriff_add_testing()
  target_link_libraries(hippogriff_testing PUBLIC GTest::gtest)
  foreach(module IN LISTS hippogriff_modules)
    hippogriff_module_sources(${module} test sources)
    if(sources)
      hippogriff_add_test_binary(hippogriff_${module}_test ${sources})
    endif()
  endforeach()
  hippogriff_add_folders(testing)
endfunction()

# The sources of a target are tests: compiled quickly.
function(hippogriff_compile_as_tests name)
  target_compile_options(${name} PRIVATE ${hippogriff_test_options})
  target_precompile_headers(${name} REUSE_FROM hippogriff_test_headers)
endfunction()

# Of tests that are compiled several at a time those that include the C++ interface are left out, since
# its names are those of the library's inside; and those whose objects testing/fake_cuda takes.
function(hippogriff_keep_apart)
  foreach(source IN LISTS ARGN)
    if(source MATCHES "^\\$<")
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source)
    set(interface "^#include <hippogriff/(array|hippogriff|reservation).hpp>")
    file(STRINGS "${source}" includes REGEX "${interface}")
    if(includes OR source MATCHES "/(abi_checksum|cuda_device|device_checksum)_test.cpp$")
      set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

# hippogriff_add_test_binary(name source.cpp… [ENVIRONMENT NAME=value…]): a GoogleTest program that
# sees the inside of the library; its tests run with the environment given. The target `tests` builds
# every one.
function(hippogriff_add_test_binary name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ENVIRONMENT")
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE hippogriff_testing hippogriff_objects GTest::gtest_main)
  hippogriff_compile_as_tests(${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${HIPPOGRIFF_UNITY_TESTS}
                                           UNITY_BUILD_BATCH_SIZE 8)
  if(HIPPOGRIFF_UNITY_TESTS)
    hippogriff_keep_apart(${arg_UNPARSED_ARGUMENTS})
  endif()
  add_dependencies(tests ${name})
  set(discover DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX "${name}: ")
  set(properties TIMEOUT 120)
  # Tests run beside each other: their devices are their own.
  list(APPEND properties ENVIRONMENT_MODIFICATION "HIPPOGRIFF_NODE=set:off")
  if(arg_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${arg_ENVIRONMENT}")
  endif()
  # Tests of CUDA fill the GPU's memory: one at a time.
  gtest_discover_tests(${name} ${discover} TEST_FILTER "-*Cuda*" TEST_LIST ${name}_plain
                       PROPERTIES ${properties})
  gtest_discover_tests(${name} ${discover} TEST_FILTER "*Cuda*" TEST_LIST ${name}_cuda
                       PROPERTIES ${properties} RESOURCE_LOCK gpu)
endfunction()

# One libFuzzer program per src/<module>/x_fuzz.cpp; its seeds are in src/<module>/corpus/x. And one for
# the files that programs of workloads/ read: with it no library, and none of these programs, is built.
function(hippogriff_add_fuzzers)
  add_custom_target(fuzzers)
  set(workloads "${PROJECT_SOURCE_DIR}/workloads")
  add_executable(workloads_inputs_fuzz
    "${workloads}/papers/inputs_fuzz.cpp" "${workloads}/papers/file.cpp"
    "${workloads}/graph/graph_file.cpp" "${workloads}/risk/risk_input.cpp"
    "${workloads}/sharing/fasta.cpp" "${workloads}/sharing/options.cpp")
  target_link_libraries(workloads_inputs_fuzz PRIVATE hippogriff_flags)
  target_compile_options(workloads_inputs_fuzz PRIVATE ${hippogriff_fuzzed})
  target_link_options(workloads_inputs_fuzz PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers workloads_inputs_fuzz)
  foreach(module IN LISTS hippogriff_modules)
    hippogriff_module_sources(${module} fuzz sources)
    foreach(source IN LISTS sources)
      cmake_path(GET source STEM stem)
      add_executable(${module}_${stem} "${source}")
      target_link_libraries(${module}_${stem} PRIVATE hippogriff_testing hippogriff_objects)
      target_compile_options(${module}_${stem} PRIVATE ${hippogriff_fuzzed})
      target_link_options(${module}_${stem} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzzers ${module}_${stem})
    endforeach()
  endforeach()
endfunction()

# bench/CMakeLists.txt where there is one, else a program per bench/*.cpp against the C interface;
# and a program per src/<module>/x_bench.cpp against the objects. The target `benchmarks` builds all.
function(hippogriff_add_benchmarks)
  if(EXISTS "${PROJECT_SOURCE_DIR}/bench/CMakeLists.txt")
    add_subdirectory("${PROJECT_SOURCE_DIR}/bench")
    get_property(targets DIRECTORY "${PROJECT_SOURCE_DIR}/bench" PROPERTY BUILDSYSTEM_TARGETS)
    add_dependencies(benchmarks ${targets})
  else()
    file(GLOB programs CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*.cpp")
    foreach(program IN LISTS programs)
      cmake_path(GET program STEM stem)
      add_executable(${stem} "${program}")
      target_link_libraries(${stem} PRIVATE hippogriff hippogriff_flags hippogriff_cuda_headers
                                            hippogriff_uring hippogriff_portable_link)
      add_dependencies(benchmarks ${stem})
    endforeach()
  endif()
  foreach(module IN LISTS hippogriff_modules)
    hippogriff_module_sources(${module} bench sources)
    foreach(source IN LISTS sources)
      cmake_path(GET source STEM stem)
      add_executable(${module}_${stem} "${source}")
      target_link_libraries(${module}_${stem} PRIVATE hippogriff_objects hippogriff_portable_link)
      add_dependencies(benchmarks ${module}_${stem})
    endforeach()
  endforeach()
endfunction()
