# libkipp.so, its CMake package (find_package(kipp) gives kipp::kipp) and its pkg-config file.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(libkipp SHARED $<TARGET_OBJECTS:kipp_capi>)
add_library(kipp::kipp ALIAS libkipp)
target_link_libraries(libkipp PRIVATE kipp_engine)
target_include_directories(libkipp INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set(kipp_symbols ${CMAKE_SOURCE_DIR}/src/capi/libkipp.map)
target_link_options(libkipp PRIVATE -Wl,--exclude-libs,ALL -Wl,--version-script=${kipp_symbols})
# Until 1.0 a minor version may change the interface, so it is part of the name that programs ask for.
set_target_properties(libkipp PROPERTIES OUTPUT_NAME kipp EXPORT_NAME kipp LINKER_LANGUAGE CXX
  LINK_DEPENDS ${kipp_symbols} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

install(TARGETS libkipp EXPORT kipp-targets)
install(FILES include/kipp/kipp.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kipp)

set(kipp_package ${CMAKE_INSTALL_LIBDIR}/cmake/kipp)
install(EXPORT kipp-targets FILE kipp-config.cmake NAMESPACE kipp:: DESTINATION ${kipp_package})
write_basic_package_version_file(kipp-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kipp-config-version.cmake DESTINATION ${kipp_package})

# Relative to the file itself, so that the installed tree can be moved.
file(RELATIVE_PATH kipp_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/kipp.pc.in kipp.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kipp.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
