# hippogriff_add_paper_program(name source.cpp…): a program made of NAME.cpp, NAME_oracle.cpp, sources and
# NAME_kernel.cu. `TINY`: the arguments of `generate` for the inputs it is tested with, one string
# for each; what its check must find is tried on the last.
function(hippogriff_add_paper_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "TINY")
  add_executable(${name} ${name}.cpp ${name}_oracle.cpp ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE papers_parts hippogriff_portable_link)
  hippogriff_add_cuda_object(${name} ${name}_kernel.cu)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/hippogriff)
  if(HIPPOGRIFF_TESTS)
    add_test(NAME ${name}_end_to_end
             COMMAND "${PROJECT_SOURCE_DIR}/workloads/papers/end_to_end_test.sh"
                     $<TARGET_FILE:${name}> ${arg_TINY})
    set_tests_properties(${name}_end_to_end PROPERTIES TIMEOUT 120)
  endif()
endfunction()
