# Compiler settings that every target shares.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")

option(KVIST_WERROR "Warnings are errors" ON)
option(KVIST_WEB "Build the chat page with npm and embed it" ON)
option(KVIST_TESTS "Build tests" ON)
option(KVIST_BENCHMARKS "Build micro-benchmarks" OFF)
option(KVIST_FUZZ "Build libFuzzer targets (clang only)" OFF)
option(KVIST_COVERAGE "Instrument for llvm-cov (clang only)" OFF)
set(KVIST_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")

# The floor is x86-64-v3 (AVX2, FMA, F16C). Contraction stays off: a multiply and an add
# are fused only where the source says fma, so that every instruction set rounds alike.
add_compile_options(-march=x86-64-v3 -ffp-contract=off -fno-omit-frame-pointer -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wno-missing-field-initializers)  # Designated initialisers leave out what has a default.
if(KVIST_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these wrongly inside Boost, Abseil and its own library headers.
  add_compile_options(-Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds -Wno-dangling-pointer
    -Wno-mismatched-new-delete)
  # To GCC, a source that is compiled together with others is a header; Clang, which compiles each alone, knows better.
  add_compile_options(-Wno-subobject-linkage)
endif()

if(KVIST_SANITIZE)
  add_compile_options(-fsanitize=${KVIST_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KVIST_SANITIZE})
endif()
if(KVIST_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
if(KVIST_COVERAGE)
  add_compile_options(-fprofile-instr-generate -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate)
endif()

# Most of what it takes to compile a file are the headers and templates it shares with its neighbours, so some neighbours
# are compiled at once. A source stands by itself all the same: the preset `clang` compiles each alone. More at once
# would save less and less, and make a change of one file dearer.
set(CMAKE_UNITY_BUILD ON CACHE BOOL "Compile several sources of a folder at once")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 4)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE}")
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(LIBURING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(XGBOOST REQUIRED IMPORTED_TARGET xgboost)
pkg_check_modules(LIBZIP REQUIRED IMPORTED_TARGET libzip)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
if(KVIST_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(KVIST_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
