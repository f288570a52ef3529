# Finds the GPU side where it is asked for. Nothing else of kvlab needs it, and its kernels take minutes to compile.
#
# Sets KVLAB_CUDA_SOURCES: the files of kernels/cuda to build; empty where they are not asked for.
option(KVLAB_CUDA "Build the GPU kernels" OFF)
file(GLOB_RECURSE KVLAB_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)

set(KVLAB_DRIVER_CUDA "" CACHE STRING "The newest CUDA that the driver runs, such as 12.8; a newer nvcc is refused")

set(why_not "")
if(NOT KVLAB_CUDA STREQUAL "ON")
  set(why_not "KVLAB_CUDA is not ON; `./kvlab ... --device cuda` turns it on")
elseif(NOT KVLAB_CUDA_SOURCES)
  set(why_not "this version has no kernels in kernels/cuda")
else()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80-real;89;90a-real")  # Ampere, Ada with its fp8, whose intermediate code Blackwell runs, and Hopper
  endif()
  # Told by the environment, since check_language tries only a compiler that it finds itself; and one that was not tried may be
  # broken, which would end the configuration.
  if(CMAKE_CUDA_COMPILER)
    set(ENV{CUDACXX} "${CMAKE_CUDA_COMPILER}")
  endif()
  if(CMAKE_CUDA_HOST_COMPILER)
    set(ENV{CUDAHOSTCXX} "${CMAKE_CUDA_HOST_COMPILER}")
  endif()
  execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/find_nvcc.sh ${KVLAB_DRIVER_CUDA}
    OUTPUT_VARIABLE nvcc RESULT_VARIABLE none OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(none)
    set(why_not "${nvcc}")
  endif()
endif()

if(why_not STREQUAL "")
  set(ENV{CUDACXX} "${nvcc}")
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(why_not "${nvcc} compiles nothing here; set CUDACXX to another nvcc, or CUDAHOSTCXX to a g++ that it takes")
  endif()
endif()

if(why_not STREQUAL "")
  enable_language(CUDA)
  find_package(CUDAToolkit QUIET)
  if(NOT TARGET CUDA::cudart_static)
    set(why_not "${CMAKE_CUDA_COMPILER} comes without CUDA's runtime library")
  endif()
endif()

if(why_not STREQUAL "")
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc 12 has it
  endif()
  message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER}, for architectures ${CMAKE_CUDA_ARCHITECTURES}")
elseif(KVLAB_CUDA STREQUAL "ON")
  message(FATAL_ERROR "CUDA is required by KVLAB_CUDA=ON, but ${why_not}")
else()
  set(KVLAB_CUDA_SOURCES "")
  message(STATUS "CUDA: left out (${why_not}); everything else works")
endif()
