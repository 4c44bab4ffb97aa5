# The language, warnings, hardening and sanitizers that every target of ours is built with.
# Targets get them by linking `plimsoll_compiler`; nothing is set globally for code that is not ours.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(PLIMSOLL_SANITIZE "" CACHE STRING "Sanitizers to build with: address;undefined or thread")
option(PLIMSOLL_COVERAGE "Count the lines of the product that run (gcov)" OFF)

find_program(CCACHE ccache)
if(CCACHE)
  # Precompiled headers defeat ccache unless it is told which differences do not matter. Checkouts share what they compile.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

# Each architecture has its own protection against jumps to where none should lead. Contracted to one operation, a product and a
# sum would be rounded otherwise than where there is none: decisions must not depend on the architecture.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(architecture_options -mbranch-protection=standard -ffp-contract=off)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|i.86)$")
  set(architecture_options -fcf-protection)
endif()

add_library(plimsoll_compiler INTERFACE)
target_include_directories(plimsoll_compiler INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(plimsoll_compiler INTERFACE
  -Wall -Wextra -Werror -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align -Wimplicit-fallthrough
  -fstack-protector-strong ${architecture_options}
  # g++ 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# cpprestsdk defines a macro U(x) that breaks Boost headers included after it.
target_compile_definitions(plimsoll_compiler INTERFACE _TURN_OFF_PLATFORM_STRING
  PLIMSOLL_VERSION="${PROJECT_VERSION}")
target_link_options(plimsoll_compiler INTERFACE -Wl,-z,relro,-z,now)
if(CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  target_compile_options(plimsoll_compiler INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
if(PLIMSOLL_SANITIZE)
  list(JOIN PLIMSOLL_SANITIZE "," sanitizers)
  # With sanitizers g++ 12 takes parts of std::regex for uninitialized (GCC bug 105562).
  target_compile_options(plimsoll_compiler INTERFACE -fsanitize=${sanitizers} -fno-omit-frame-pointer
    -fno-sanitize-recover=all $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if("undefined" IN_LIST PLIMSOLL_SANITIZE)
    # cpprestsdk's stream templates have a type_info of their own inside its library, which the check of virtual
    # calls takes for another class.
    target_compile_options(plimsoll_compiler INTERFACE -fno-sanitize=vptr)
  endif()
  if("thread" IN_LIST PLIMSOLL_SANITIZE)
    # ThreadSanitizer does not understand the fences in Boost.Asio, and g++ says so.
    target_compile_options(plimsoll_compiler INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
  target_link_options(plimsoll_compiler INTERFACE -fsanitize=${sanitizers})
endif()

if(PLIMSOLL_COVERAGE)
  target_link_options(plimsoll_compiler INTERFACE --coverage)
endif()

include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)
