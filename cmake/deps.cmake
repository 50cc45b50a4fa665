# Debian 12 packages; docs/decisions/002-dependencies.md says why each was chosen.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2 REQUIRED)
find_package(CURL 7.88 REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(hwy 1.0.3 REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)  # Debian's says no version
find_package(spdlog 1.10 REQUIRED)
# Debian ships 2.8.0 whose .pc file says 2.6.0.
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc>=2.6)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd>=1.5)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash>=0.8)
pkg_check_modules(libedit REQUIRED IMPORTED_TARGET libedit)
