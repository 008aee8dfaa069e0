# `cmake --install`: the program, and the libraries with their headers, for CMake (find_package(meshloom)) and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS meshloom RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set(libraries meshloom_trainer meshloom_layers meshloom_backends meshloom_kernels meshloom_hal)
foreach(library ${libraries})
  string(REPLACE meshloom_ "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS ${libraries} EXPORT meshloom ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/meshloom)
# Sources include headers by their path from the root, such as "hal/device.h".
install(DIRECTORY ${CMAKE_SOURCE_DIR}/hal ${CMAKE_SOURCE_DIR}/kernels ${CMAKE_SOURCE_DIR}/layers
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/meshloom FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${CMAKE_SOURCE_DIR}/trainer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/meshloom
  FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/backends DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/meshloom
  FILES_MATCHING PATTERN "*/backend.h")
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/meshloom)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/meshloomConfig.cmake.in
  ${CMAKE_BINARY_DIR}/generated/meshloomConfig.cmake INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/meshloomConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/meshloomConfig.cmake ${CMAKE_BINARY_DIR}/generated/meshloomConfigVersion.cmake
  DESTINATION ${config_folder})
install(EXPORT meshloom NAMESPACE meshloom:: FILE meshloomTargets.cmake DESTINATION ${config_folder})

# The libraries are static, so a user links all that they need: `pkg-config --static`.
set(private_packages "")
set(private_libraries "")
if(MESHLOOM_VULKAN)
  string(APPEND private_packages "vulkan SPIRV-Tools ")
  set(private_libraries "-lSPIRV -lglslang -lMachineIndependent -lOSDependent -lOGLCompiler -lGenericCodeGen"
    "-lglslang-default-resource-limits -lSPIRV-Tools-opt -lSPIRV-Tools -lSPIRV-Tools-link")
  list(JOIN private_libraries " " private_libraries)
endif()
if(MESHLOOM_OPENCL)
  string(APPEND private_packages "OpenCL ")
endif()
if(MESHLOOM_HAS_MPI)
  string(APPEND private_packages "ompi-c ")
endif()
file(RELATIVE_PATH prefix_of_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_SOURCE_DIR}/cmake/meshloom.pc.in ${CMAKE_BINARY_DIR}/generated/meshloom.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/meshloom.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
