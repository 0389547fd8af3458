# cachalot_library(NAME [DEPS cachalot_x ...] [LIBS external ...])
#
# One static library per source directory: every *.cpp beside the CMakeLists.txt belongs to it, every
# *_test.cpp to the executable NAME_test, whose GoogleTest cases ctest runs one by one.
find_package(Threads REQUIRED)

add_library(cachalot_options INTERFACE)
# An operand left out of an args struct's designated initialisers is an absent operand (docs/seam.md).
set(CACHALOT_WARNINGS -Wall -Wextra -Werror -Wno-missing-field-initializers)
target_compile_options(cachalot_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${CACHALOT_WARNINGS}>)
target_include_directories(cachalot_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(cachalot_options INTERFACE Threads::Threads)
if(CACHALOT_SANITIZE)
  target_compile_options(cachalot_options INTERFACE
    -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(cachalot_options INTERFACE -fsanitize=address,undefined)
endif()
if(CACHALOT_BUILD_FUZZ)
  target_compile_options(cachalot_options INTERFACE
    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
endif()

if(CACHALOT_BUILD_TESTS)
  # Its sources serve as well: Debian's googletest package, or a folder that is named.
  set(CACHALOT_GOOGLETEST /usr/src/googletest CACHE PATH "Sources of GoogleTest")
  if(CACHALOT_CORE AND EXISTS ${CACHALOT_GOOGLETEST}/CMakeLists.txt)
    set(INSTALL_GTEST OFF)
    add_subdirectory(${CACHALOT_GOOGLETEST} ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
    foreach(library gtest gtest_main gmock gmock_main)
      if(NOT TARGET GTest::${library})
        add_library(GTest::${library} ALIAS ${library})
      endif()
    endforeach()
  else()
    find_package(GTest REQUIRED)
  endif()
  include(GoogleTest)
endif()

# Most of a small file's compilation is the same headers of the standard library, fmt and GoogleTest:
# they are read once for all libraries and once for all tests. A compiler cache does that better.
function(cachalot_precompile owner)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${owner}.cpp CONTENT "")
  add_library(${owner} OBJECT ${CMAKE_BINARY_DIR}/${owner}.cpp)
  target_link_libraries(${owner} PRIVATE cachalot_options)
  target_precompile_headers(${owner} PRIVATE
    <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstring> <filesystem>
    <functional> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread>
    <unordered_map> <utility> <vector> <fmt/format.h> <tl/expected.hpp> ${ARGN})
endfunction()

function(cachalot_precompiled target owner)
  if(TARGET ${owner})
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

# Code that only tests or parses options need not be fast: lighter optimisation, quicker builds.
function(cachalot_lightly_optimised target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

cachalot_precompile(cachalot_library_headers)
if(CACHALOT_BUILD_TESTS)
  cachalot_precompile(cachalot_test_headers <fstream> <random> <gtest/gtest.h>)
  if(TARGET cachalot_test_headers)
    target_link_libraries(cachalot_test_headers PRIVATE GTest::gtest)
    cachalot_lightly_optimised(cachalot_test_headers)
  endif()
endif()

function(cachalot_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;TEST_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC cachalot_options ${ARG_DEPS} ${ARG_LIBS})
    cachalot_precompiled(${name} cachalot_library_headers)
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE cachalot_options ${ARG_DEPS} ${ARG_LIBS})
  endif()
  if(tests AND CACHALOT_BUILD_TESTS)
    cachalot_test(${name}_test SOURCES ${tests} DEPS ${name} ${ARG_TEST_DEPS})
  endif()
endfunction()

# cachalot_soak(NAME SOURCES file ... DEPS target ...)
#
# A test too long for ctest: the target `soak` builds and runs all of them.
add_custom_target(soak)
function(cachalot_soak name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE CACHALOT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  cachalot_lightly_optimised(${name})
  add_custom_target(run_${name} COMMAND ${name} USES_TERMINAL)
  add_dependencies(soak run_${name})
endfunction()

# cachalot_test(NAME SOURCES file ... DEPS target ... [TIMEOUT seconds])
#
# A test that asks for more than the usual time runs whole models: it is labelled slow, and the
# sanitizer build leaves it out. The others make up the target unit_tests.
add_custom_target(unit_tests)
function(cachalot_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE CACHALOT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set(label unit)
  cachalot_lightly_optimised(${name})
  cachalot_precompiled(${name} cachalot_test_headers)
  if(ARG_TIMEOUT GREATER 120)
    set(label slow)
  else()
    add_dependencies(unit_tests ${name})
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS ${label})
endfunction()

# cachalot_gpu_test(NAME SOURCES file ... DEPS target ...)
#
# Needs a GPU where it runs: labelled gpu, and only there for `ctest -L gpu` on such a machine.
add_custom_target(gpu_tests)
function(cachalot_gpu_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE CACHALOT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  cachalot_lightly_optimised(${name})
  cachalot_precompiled(${name} cachalot_test_headers)
  add_dependencies(gpu_tests ${name})
  # Some of its tests have the name of a test of the CPU, which else would be labelled too.
  gtest_discover_tests(${name} TEST_PREFIX gpu/ DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 600 LABELS gpu)
endfunction()
