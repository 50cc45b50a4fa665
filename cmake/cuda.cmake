# The cuda backend. KIPP_CUDA=AUTO builds it where a working nvcc is found (PATH, CUDACXX), ON insists on it, OFF leaves
# it out: `--backend cuda` is then refused with a sentence. Sets KIPP_HAS_CUDA.
set(KIPP_CUDA AUTO CACHE STRING "Build the cuda backend: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE KIPP_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT KIPP_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KIPP_CUDA: expected AUTO, ON or OFF, found ${KIPP_CUDA}")
endif()

set(KIPP_HAS_CUDA FALSE)
# What it was built with so far.
set(kipp_cuda_least 13.0)

function(kipp_no_cuda why)
  if(KIPP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "KIPP_CUDA=ON: ${why}")
  endif()
  message(STATUS "cuda backend: left out, ${why}")
endfunction()

macro(kipp_find_cuda)
  # Named before the language is enabled: CMake 3.25 would try an architecture that nvcc 13 no longer knows. Code of each
  # for A100, L4 and RTX 40, H100 and H200; PTX of the last for what comes later.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90)
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # linked by name below
  find_program(KIPP_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(KIPP_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} ${KIPP_NVCC})
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    kipp_no_cuda("expected nvcc, found none that works")
  else()
    enable_language(CUDA)
    # CMake 3.25 does not know that nvcc compiles C++20.
    foreach(dialect STANDARD EXTENSION)
      if(NOT CMAKE_CUDA20_${dialect}_COMPILE_OPTION)
        set(CMAKE_CUDA20_${dialect}_COMPILE_OPTION -std=c++20)
      endif()
    endforeach()
    # CMake looks where a toolkit of the system keeps it; the wheels on PyPI keep it in lib.
    get_filename_component(kipp_nvcc ${CMAKE_CUDA_COMPILER} REALPATH)
    find_library(KIPP_CUDART cudart_static
                 HINTS ${kipp_nvcc}/../.. ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} PATH_SUFFIXES lib lib64)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS kipp_cuda_least)
      kipp_no_cuda("expected nvcc ${kipp_cuda_least} or later, found ${CMAKE_CUDA_COMPILER_VERSION}")
    elseif(NOT KIPP_CUDART)
      kipp_no_cuda("expected the runtime library cudart_static beside ${CMAKE_CUDA_COMPILER}, found none")
    else()
      set(KIPP_HAS_CUDA TRUE)
      message(STATUS "cuda backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, ${CMAKE_CUDA_ARCHITECTURES}")
    endif()
  endif()
endmacro()

if(NOT KIPP_CUDA STREQUAL "OFF")
  kipp_find_cuda()
endif()

# A sum must not depend on what nvcc contracts: where a multiplication is fused with an addition, the kernel says so.
# -Wconversion is left to the emulated build of the same kernels, which has none of the code that nvcc adds.
set(KIPP_NVCC_FLAGS -fmad=false --expt-relaxed-constexpr --Werror=all-warnings
    -Xcompiler=-Wall,-Wextra,-Wshadow,-Werror,-ffp-contract=off)

file(GLOB kipp_cuda_host CONFIGURE_DEPENDS src/backend/cuda/*.cc)
list(FILTER kipp_cuda_host EXCLUDE REGEX "/emulation\\.cc$")

# Kernels and runtime calls with nvcc, the host side with the C++ compiler. No header of CUDA is seen outside the .cu
# files, so that nothing else needs a toolkit.
if(KIPP_HAS_CUDA)
  file(GLOB kernels CONFIGURE_DEPENDS src/backend/cuda/*.cu)
  add_library(kipp_backend_cuda STATIC ${kipp_cuda_host} ${kernels})
  target_link_libraries(kipp_backend_cuda PUBLIC kipp_backend_common)
  target_compile_options(kipp_backend_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${KIPP_WARNINGS}> $<$<COMPILE_LANGUAGE:CUDA>:${KIPP_NVCC_FLAGS}>)
  set_target_properties(kipp_backend_cuda PROPERTIES
    CUDA_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  # cudart_static opens the driver when it is first called: programs start, and say what is missing, without one.
  target_link_libraries(kipp_backend_cuda PRIVATE ${KIPP_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt)
  target_link_libraries(kipp_backend PUBLIC kipp_backend_cuda)
  target_compile_definitions(kipp_backend PRIVATE KIPP_HAS_CUDA=1)
endif()

add_subdirectory(src/backend/cuda/emulated)
