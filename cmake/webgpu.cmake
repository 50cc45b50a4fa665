# The webgpu backend and all else that computes through webgpu.h: KIPP_WEBGPU=ON builds it and insists on wgpu-native in
# KIPP_WGPU_ROOT, OFF leaves it out: `--backend webgpu` is then refused with a sentence. Headers of WebGPU are seen by
# src/gpu alone. docs/decisions/008-webgpu.md says why this library.
option(KIPP_WEBGPU "Build the webgpu backend, which needs wgpu-native" OFF)
set(KIPP_WGPU_ROOT ${CMAKE_SOURCE_DIR}/.deps/wgpu-native CACHE PATH
    "Folder of wgpu-native: include/webgpu.h, include/wgpu.h, lib/libwgpu_native.so")

# Tests run on the software adapter where it is installed, whatever GPU is there beside it: their bounds hold on any, and
# a machine of CI has no other. Empty: on what the machine has. NODEVICE_SELECT keeps a layer of Mesa's, which looks for a
# desktop, from complaining on standard error that there is none.
file(GLOB kipp_software_vulkan /usr/share/vulkan/icd.d/lvp_icd.*.json)
set(KIPP_TEST_VULKAN "${kipp_software_vulkan}" CACHE STRING "Vulkan driver file that tests run on; empty: all of the system's")
set(KIPP_WEBGPU_TEST_ENVIRONMENT NODEVICE_SELECT=1)
if(KIPP_TEST_VULKAN)
  list(APPEND KIPP_WEBGPU_TEST_ENVIRONMENT VK_DRIVER_FILES=${KIPP_TEST_VULKAN})
endif()

# kvquant has an option of its own, since it builds alone as well.
set(KVQUANT_WGPU ${KIPP_WEBGPU})

if(KIPP_WEBGPU)
  set(kipp_wgpu_missing "")
  foreach(file include/webgpu.h include/wgpu.h lib/libwgpu_native.so)
    if(NOT EXISTS ${KIPP_WGPU_ROOT}/${file})
      list(APPEND kipp_wgpu_missing ${file})
    endif()
  endforeach()
  if(kipp_wgpu_missing)
    list(JOIN kipp_wgpu_missing ", " kipp_wgpu_missing)
    message(FATAL_ERROR "KIPP_WEBGPU=ON: expected wgpu-native in KIPP_WGPU_ROOT (${KIPP_WGPU_ROOT}), found no "
                        "${kipp_wgpu_missing} there; `./dev deps --webgpu` fetches it into .deps/wgpu-native")
  endif()

  # Named by its file: the library carries no SONAME.
  add_library(wgpu_native SHARED IMPORTED)
  set_target_properties(wgpu_native PROPERTIES IMPORTED_LOCATION ${KIPP_WGPU_ROOT}/lib/libwgpu_native.so
                        IMPORTED_NO_SONAME TRUE INTERFACE_INCLUDE_DIRECTORIES ${KIPP_WGPU_ROOT}/include)

  # No package of the system brings the library, so it is installed with what needs it, which looks for it relative to
  # itself: the tree can be moved.
  include(GNUInstallDirs)
  install(FILES ${KIPP_WGPU_ROOT}/lib/libwgpu_native.so DESTINATION ${CMAKE_INSTALL_LIBDIR})
  file(RELATIVE_PATH kipp_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set(CMAKE_INSTALL_RPATH "$ORIGIN" "$ORIGIN/${kipp_bin_to_lib}")

  file(GLOB kipp_gpu_sources CONFIGURE_DEPENDS src/gpu/*.cc)
  if(kipp_gpu_sources)
    # Built as kvquant is, which uses it.
    kipp_library(gpu gpu)
    target_compile_options(gpu PRIVATE -fno-exceptions)
    target_link_libraries(gpu PRIVATE wgpu_native)
  endif()
endif()

# kipp_webgpu_backend(): the backend itself, for kipp_backend. Every src/backend/webgpu/wgsl/NAME.wgsl is in the program
# and reachable as kipp::webgpu::shader("NAME"), see src/backend/webgpu/shaders.h.
function(kipp_webgpu_backend)
  file(GLOB sources CONFIGURE_DEPENDS src/backend/webgpu/*.cc)
  if(NOT TARGET gpu OR NOT sources)
    return()
  endif()
  kipp_library(kipp_backend_webgpu backend/webgpu kipp_backend_common gpu kvquant_wgpu)
  file(GLOB shaders CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src/backend/webgpu/wgsl
       src/backend/webgpu/wgsl/*.wgsl)
  set(declared "")
  set(listed "")
  foreach(file IN LISTS shaders)
    get_filename_component(name ${file} NAME_WE)
    kipp_embed(kipp_backend_webgpu kipp_wgsl_${name} src/backend/webgpu/wgsl/${file})
    string(APPEND declared "extern const char kipp_wgsl_${name}[], kipp_wgsl_${name}_end[];\n")
    string(APPEND listed "    {\"${name}\", kipp_wgsl_${name}, kipp_wgsl_${name}_end},\n")
  endforeach()
  list(LENGTH shaders count)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/webgpu_shaders.cc CONTENT [[
#include <array>

#include "backend/webgpu/shaders.h"

extern "C" {
@declared@}

namespace kipp::webgpu {

namespace {

struct Shader {
  std::string_view name;
  const char* begin;
  const char* end;
};

const std::array<Shader, @count@> kShaders = {{
@listed@}};

}  // namespace

std::string_view shader(std::string_view name) {
  for (const Shader& each : kShaders) {
    if (each.name == name) {
      return {each.begin, static_cast<std::size_t>(each.end - each.begin)};
    }
  }
  return {};
}

}  // namespace kipp::webgpu
]] @ONLY)
  target_sources(kipp_backend_webgpu PRIVATE ${CMAKE_BINARY_DIR}/webgpu_shaders.cc)
  target_link_libraries(kipp_backend PUBLIC kipp_backend_webgpu)
  target_compile_definitions(kipp_backend PRIVATE KIPP_HAS_WEBGPU=1)
endfunction()
