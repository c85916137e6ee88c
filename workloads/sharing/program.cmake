# hippogriff_add_sharing_program(name source.cpp…): a program made of NAME_main.cpp and, which its
# test, NAME_test.cpp, links as well, NAME_kernel.cu and the sources.
function(hippogriff_add_sharing_program name)
  add_library(${name}_parts STATIC ${ARGN})
  target_link_libraries(${name}_parts PUBLIC sharing_parts)
  hippogriff_add_cuda_object(${name}_parts ${name}_kernel.cu)
  add_executable(${name} ${name}_main.cpp)
  target_link_libraries(${name} PRIVATE ${name}_parts hippogriff_portable_link)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/hippogriff)
  if(HIPPOGRIFF_TESTS)
    add_executable(${name}_test ${name}_test.cpp)
    target_link_libraries(${name}_test PRIVATE ${name}_parts GTest::gtest_main)
    hippogriff_compile_as_tests(${name}_test)
    add_dependencies(tests ${name}_test)
    gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}_test: "
                         PROPERTIES TIMEOUT 120)
  endif()
endfunction()
