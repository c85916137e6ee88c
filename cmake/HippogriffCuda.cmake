# CUDA without CMake's own CUDA language: that wants a complete toolkit, and ours may be the wheels
# from PyPI. nvcc compiles each .cu by a custom command; only executables link the CUDA runtime.
#
# Sets HIPPOGRIFF_HAS_CUDA (0 or 1) and defines the interface target `hippogriff_cuda_headers`, which
# gives HIPPOGRIFF_HAS_CUDA, HIPPOGRIFF_HAS_NVTX and the headers, and the functions
# hippogriff_add_cuda_object(target source.cu…) and hippogriff_add_cuda_image(…).

set(HIPPOGRIFF_HAS_CUDA 0)
set(HIPPOGRIFF_HAS_NVTX 0)
add_library(hippogriff_cuda_headers INTERFACE)

# Every GPU architecture we name, and PTX for the ones to come.
set(HIPPOGRIFF_CUDA_TARGETS -gencode=arch=compute_80,code=sm_80
                            -gencode=arch=compute_90,code=[sm_90,compute_90]
    CACHE STRING "nvcc's -gencode options")
set(HIPPOGRIFF_CUDA_PROGRAM_TARGETS "${HIPPOGRIFF_CUDA_TARGETS}"
    CACHE STRING "the same for workloads and benchmarks")
# Code that is only compiled, not run, need not be optimised.
set(HIPPOGRIFF_CUDA_PROGRAM_OPTIONS "" CACHE STRING "More options of nvcc for programs")
set(HIPPOGRIFF_CUDA_IMAGE_OPTIONS "" CACHE STRING "More options of nvcc for the library's kernels")
mark_as_advanced(HIPPOGRIFF_CUDA_TARGETS HIPPOGRIFF_CUDA_PROGRAM_TARGETS
                 HIPPOGRIFF_CUDA_PROGRAM_OPTIONS HIPPOGRIFF_CUDA_IMAGE_OPTIONS)

function(hippogriff_find_cuda)
  set(root "${HIPPOGRIFF_CUDA_ROOT}")
  if(NOT root)
    execute_process(COMMAND "${PROJECT_SOURCE_DIR}/tools/find-cuda"
                    OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE
                    RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "No CUDA 13 toolkit. Run tools/bootstrap build, set CUDA_HOME, or turn "
                          "CUDA off: HIPPOGRIFF_CUDA=OFF make (cmake -DHIPPOGRIFF_CUDA=OFF).")
    endif()
  endif()
  find_program(HIPPOGRIFF_NVCC nvcc PATHS "${root}/bin" NO_DEFAULT_PATH NO_CACHE REQUIRED)
  find_file(HIPPOGRIFF_CUDART libcudart_static.a NO_DEFAULT_PATH NO_CACHE REQUIRED
            PATHS "${root}/lib" "${root}/lib64" "${root}/targets/x86_64-linux/lib"
                  "${root}/targets/sbsa-linux/lib")
  message(STATUS "CUDA toolkit: ${root}")
  set(HIPPOGRIFF_CUDA_FOUND_ROOT "${root}" PARENT_SCOPE)
  set(HIPPOGRIFF_NVCC "${HIPPOGRIFF_NVCC}" PARENT_SCOPE)
  set(HIPPOGRIFF_CUDART "${HIPPOGRIFF_CUDART}" PARENT_SCOPE)
endfunction()

if(HIPPOGRIFF_CUDA)
  hippogriff_find_cuda()
  set(HIPPOGRIFF_HAS_CUDA 1)
  target_include_directories(hippogriff_cuda_headers SYSTEM
                             INTERFACE "${HIPPOGRIFF_CUDA_FOUND_ROOT}/include")
  if(EXISTS "${HIPPOGRIFF_CUDA_FOUND_ROOT}/include/nvtx3/nvtx3.hpp")
    set(HIPPOGRIFF_HAS_NVTX 1)
  endif()
endif()
target_compile_definitions(hippogriff_cuda_headers
                           INTERFACE HIPPOGRIFF_HAS_CUDA=${HIPPOGRIFF_HAS_CUDA}
                                     HIPPOGRIFF_HAS_NVTX=${HIPPOGRIFF_HAS_NVTX})

# Compiles .cu files with nvcc and adds them, the static CUDA runtime and the CUDA headers to an
# executable. Without CUDA it only defines HIPPOGRIFF_HAS_CUDA=0: the target must do without.
function(hippogriff_add_cuda_object target)
  target_link_libraries(${target} PRIVATE hippogriff_cuda_headers)
  if(NOT HIPPOGRIFF_HAS_CUDA)
    return()
  endif()
  set(includes "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    cmake_path(GET source STEM stem)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${target}.${stem}.cu.o")
    add_custom_command(
      OUTPUT "${object}"
      COMMAND "${HIPPOGRIFF_NVCC}" -c -std=c++20 -O3 -lineinfo ${HIPPOGRIFF_CUDA_PROGRAM_TARGETS}
              ${HIPPOGRIFF_CUDA_PROGRAM_OPTIONS} -Werror all-warnings
              -ccbin "${CMAKE_CXX_COMPILER}" -Xcompiler -fPIC,-Wall,-Wextra
              -DHIPPOGRIFF_HAS_CUDA=1 -DHIPPOGRIFF_HAS_NVTX=${HIPPOGRIFF_HAS_NVTX}
              "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/src"
              "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>"
              -MD -MT "${object}" -MF "${object}.d" -o "${object}" "${source}"
      DEPENDS "${source}" "${HIPPOGRIFF_NVCC}"
      DEPFILE "${object}.d"
      COMMENT "nvcc ${source}"
      COMMAND_EXPAND_LISTS VERBATIM)
    target_sources(${target} PRIVATE "${object}")
    set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  endforeach()
  target_link_libraries(${target} PRIVATE "${HIPPOGRIFF_CUDART}" Threads::Threads ${CMAKE_DL_LIBS} rt)
endfunction()

# Compiles a .cu file with nvcc to an image of all architectures, for the driver to load at run
# time: nothing links CUDA. The C++ file that takes it in finds its path in the definition named.
function(hippogriff_add_cuda_image source definition kernel)
  if(NOT HIPPOGRIFF_HAS_CUDA)
    return()
  endif()
  cmake_path(GET kernel STEM stem)
  set(image "${CMAKE_CURRENT_BINARY_DIR}/${stem}.fatbin")
  # Another nvcc than ours may be short of registers, and so is one in haste: that must not keep
  # anybody from building.
  set(spills "")
  if(HIPPOGRIFF_WERROR AND NOT HIPPOGRIFF_CUDA_IMAGE_OPTIONS)
    set(spills -Xptxas -warn-spills)
  endif()
  add_custom_command(
    OUTPUT "${image}"
    COMMAND "${HIPPOGRIFF_NVCC}" -fatbin -std=c++20 -O3 ${HIPPOGRIFF_CUDA_TARGETS}
            ${HIPPOGRIFF_CUDA_IMAGE_OPTIONS} -Werror all-warnings ${spills}
            -ccbin "${CMAKE_CXX_COMPILER}"
            "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/src"
            -MD -MT "${image}" -MF "${image}.d" -o "${image}" "${kernel}"
    DEPENDS "${kernel}" "${HIPPOGRIFF_NVCC}"
    DEPFILE "${image}.d"
    COMMENT "nvcc ${kernel}"
    VERBATIM)
  set_source_files_properties("${source}" PROPERTIES OBJECT_DEPENDS "${image}" COMPILE_DEFINITIONS
                              "${definition}=\"${image}\"")
endfunction()
