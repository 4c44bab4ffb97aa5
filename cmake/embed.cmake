# plimsoll_embed(TARGET FILE NAMESPACE SYMBOL)
# The text of a data file as a part of a library: `extern const char* const SYMBOL` of that namespace.
function(plimsoll_embed target file namespace symbol)
  file(READ ${PROJECT_SOURCE_DIR}/${file} text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
  set(source ${PROJECT_BINARY_DIR}/embedded/${file}.cc)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [=[
// From @file@, by cmake/embed.cmake.
namespace @namespace@ {
extern const char* const @symbol@;
const char* const @symbol@ = R"data(@text@)data";
}
]=])
  target_sources(${target} PRIVATE ${source})
endfunction()
