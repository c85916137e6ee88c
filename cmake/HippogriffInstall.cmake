# What `make install` puts below the prefix: library, headers, pkg-config file, CMake package.

include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/hippogriff")

install(TARGETS hippogriff EXPORT hippogriff_targets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/hippogriff"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.cuh")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# The prefix is worked out from where the file lies, so that an installed tree can be moved.
file(RELATIVE_PATH pkgconfig_to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file("${PROJECT_SOURCE_DIR}/packaging/hippogriff.pc.in"
               "${PROJECT_BINARY_DIR}/packaging/hippogriff.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/packaging/hippogriff.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

install(EXPORT hippogriff_targets NAMESPACE hippogriff:: DESTINATION "${package_folder}"
        FILE hippogriff-targets.cmake)
configure_package_config_file("${PROJECT_SOURCE_DIR}/packaging/hippogriff-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/packaging/hippogriff-config.cmake"
                              INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/packaging/hippogriff-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/packaging/hippogriff-config.cmake"
              "${PROJECT_BINARY_DIR}/packaging/hippogriff-config-version.cmake"
        DESTINATION "${package_folder}")
