# Every library kvlab stands on: the system's where it has one, else a pinned release that CMake fetches.
#
# The releases are those of Debian 12, so that both ways build the same code. FIND_PACKAGE_ARGS is what makes
# FetchContent ask find_package first.
include(FetchContent)

# Fetched libraries build no tests, examples or install rules of their own. The policies make their option()
# and set(CACHE) respect the variables below.
set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
set(CMAKE_POLICY_DEFAULT_CMP0126 NEW)
set(BUILD_TESTING OFF)
set(BENCHMARK_ENABLE_TESTING OFF)
set(BENCHMARK_ENABLE_INSTALL OFF)
set(BENCHMARK_ENABLE_WERROR OFF)
set(BUILD_GMOCK OFF)
set(HWY_ENABLE_CONTRIB OFF)
set(HWY_ENABLE_EXAMPLES OFF)
set(HWY_ENABLE_INSTALL OFF)
set(HWY_ENABLE_TESTS OFF)
set(INSTALL_GTEST OFF)
set(ENABLE_SAMPLES OFF)  # muParser's; so is ENABLE_OPENMP
set(ENABLE_OPENMP OFF)

FetchContent_Declare(Eigen3 SYSTEM
  URL https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.bz2
  URL_HASH SHA256=b4c198460eba6f28d34894e3a5710998818515104d6e74e5cc331ce31e46e626
  SOURCE_SUBDIR headers-only  # no such folder: Eigen's own CMake would look for Fortran, Qt and solvers
  FIND_PACKAGE_ARGS 3.4 NO_MODULE)
FetchContent_Declare(benchmark SYSTEM
  URL https://github.com/google/benchmark/archive/refs/tags/v1.7.1.tar.gz
  URL_HASH SHA256=6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7
  FIND_PACKAGE_ARGS)
FetchContent_Declare(tomlplusplus SYSTEM
  URL https://github.com/marzer/tomlplusplus/archive/refs/tags/v3.3.0.tar.gz
  URL_HASH SHA256=fc1a5eb410f3c67e90e5ad1264a1386d020067cfb01b633cc8c0441789aa6cf2
  FIND_PACKAGE_ARGS)
FetchContent_Declare(CLI11 SYSTEM
  URL https://github.com/CLIUtils/CLI11/archive/v2.1.2.tar.gz
  URL_HASH SHA256=26291377e892ba0e5b4972cdfd4a2ab3bf53af8dac1f4ea8fe0d1376b625c8cb
  FIND_PACKAGE_ARGS)
FetchContent_Declare(nlohmann_json SYSTEM
  URL https://github.com/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz
  URL_HASH SHA256=d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273
  FIND_PACKAGE_ARGS)
FetchContent_Declare(hwy SYSTEM
  URL https://github.com/google/highway/archive/refs/tags/1.0.3.tar.gz
  URL_HASH SHA256=566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e
  FIND_PACKAGE_ARGS)
FetchContent_Declare(muparser SYSTEM
  URL https://deb.debian.org/debian/pool/main/m/muparser/muparser_2.3.3.orig.tar.gz
  URL_HASH SHA256=91d26d8274ae9cd9c776ee58250aeddc6b574f369eafd03b25045b858a2b8177
  FIND_PACKAGE_ARGS)
FetchContent_Declare(googletest SYSTEM
  URL https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
  URL_HASH SHA256=81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2
  FIND_PACKAGE_ARGS NAMES GTest)
FetchContent_MakeAvailable(Eigen3 benchmark tomlplusplus CLI11 nlohmann_json hwy muparser)
if(NOT SKBUILD)
  FetchContent_MakeAvailable(googletest)
endif()

if(NOT TARGET Eigen3::Eigen)
  add_library(eigen INTERFACE)
  target_include_directories(eigen SYSTEM INTERFACE ${eigen3_SOURCE_DIR})
  add_library(Eigen3::Eigen ALIAS eigen)
endif()
if(NOT TARGET muparser::muparser)
  add_library(muparser::muparser ALIAS muparser)
endif()
if(NOT TARGET hwy::hwy)  # a fetched Highway of this release names its target without the namespace
  add_library(hwy::hwy ALIAS hwy)
endif()

# libcsv has no CMake package: it is one header and one C file.
find_path(LIBCSV_INCLUDE csv.h)
find_library(LIBCSV_LIBRARY csv)
if(LIBCSV_INCLUDE AND LIBCSV_LIBRARY)
  add_library(libcsv INTERFACE)
  target_include_directories(libcsv SYSTEM INTERFACE ${LIBCSV_INCLUDE})
  target_link_libraries(libcsv INTERFACE ${LIBCSV_LIBRARY})
else()
  FetchContent_Declare(libcsv_source
    URL https://downloads.sourceforge.net/project/libcsv/libcsv/libcsv-3.0.3/libcsv-3.0.3.tar.gz
    URL_HASH SHA256=d9c0431cb803ceb9896ce74f683e6e5a0954e96ae1d9e4028d6e0f967bebd7e4)
  FetchContent_MakeAvailable(libcsv_source)
  add_library(libcsv STATIC ${libcsv_source_SOURCE_DIR}/libcsv.c)
  target_include_directories(libcsv SYSTEM PUBLIC ${libcsv_source_SOURCE_DIR})
endif()

# A model's products in bf16. oneDNN takes half an hour to build, so it is not fetched.
option(KVLAB_ONEDNN "Products in bf16 by oneDNN (Debian: libdnnl-dev), where it is installed" ON)
find_path(ONEDNN_INCLUDE dnnl.h)
find_library(ONEDNN_LIBRARY dnnl)
if(KVLAB_ONEDNN AND ONEDNN_INCLUDE AND ONEDNN_LIBRARY)
  add_library(onednn INTERFACE)
  target_include_directories(onednn SYSTEM INTERFACE ${ONEDNN_INCLUDE})
  target_link_libraries(onednn INTERFACE ${ONEDNN_LIBRARY})
elseif(KVLAB_ONEDNN)
  message(STATUS "oneDNN not found: products = \"bf16\" is refused; install libdnnl-dev")
endif()

# Several reads of a file in flight at once. Where it is missing, or the kernel refuses it, a thread reads one after the other.
option(KVLAB_URING "Reads of tiers' files by io_uring (Debian: liburing-dev), where it is installed" ON)
find_path(URING_INCLUDE liburing.h)
find_library(URING_LIBRARY uring)
if(KVLAB_URING AND URING_INCLUDE AND URING_LIBRARY)
  add_library(uring INTERFACE)
  target_include_directories(uring SYSTEM INTERFACE ${URING_INCLUDE})
  target_link_libraries(uring INTERFACE ${URING_LIBRARY})
elseif(KVLAB_URING)
  message(STATUS "liburing not found: files of tiers are read one request at a time; install liburing-dev")
endif()

# OpenMP belongs to the compiler: nothing to fetch.
find_package(OpenMP REQUIRED COMPONENTS CXX)
