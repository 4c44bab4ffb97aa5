# Headers that nearly every file parses, parsed once for many targets. The `debug`
# preset builds without them, which shows an #include that a file lacks.
option(PLIMSOLL_PRECOMPILE_HEADERS "Precompile the headers that nearly every file includes" ON)

# plimsoll_precompiled(NAME LIBRARY|PROGRAM USES target... HEADERS header...)
# Programs and libraries compile differently (-fPIE, -fPIC), so each kind needs headers of its own.
function(plimsoll_precompiled name kind)
  if(NOT PLIMSOLL_PRECOMPILE_HEADERS)
    return()
  endif()
  cmake_parse_arguments(SHARED "" "" "USES;HEADERS" ${ARGN})
  set(source ${PROJECT_BINARY_DIR}/${name}.cc)
  file(GENERATE OUTPUT ${source} CONTENT "int main() {}\n")
  if(kind STREQUAL "PROGRAM")
    add_executable(${name} ${source})
  else()
    add_library(${name} STATIC ${source})
  endif()
  target_link_libraries(${name} PRIVATE ${SHARED_USES} plimsoll_compiler)
  target_precompile_headers(${name} PRIVATE ${SHARED_HEADERS})
endfunction()

# Gives `target` the headers of an earlier plimsoll_precompiled.
function(plimsoll_use_precompiled target name)
  if(PLIMSOLL_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${name})
    # g++ forgets which of the precompiled headers are the system's, and tells its false findings in std::string.
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>)
  endif()
endfunction()
