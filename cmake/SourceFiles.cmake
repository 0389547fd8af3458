# cachalot_source_files(): the sources that describe the model as bytes inside the program, for
# src/inspect/source_text.h, and the commit they are of.
function(cachalot_source_files target)
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
    ${CMAKE_SOURCE_DIR}/src/model/*.cpp ${CMAKE_SOURCE_DIR}/src/ops/*.h)
  list(SORT sources)
  set(assembly)
  set(declarations)
  set(entries)
  set(dependencies)
  set(number 0)
  foreach(source ${sources})
    set(symbol cachalot_source_${number})
    string(APPEND assembly
      "    \".globl ${symbol}\\n.hidden ${symbol}\\n${symbol}:\\n.incbin \\\"${CMAKE_SOURCE_DIR}/${source}\\\"\\n\"\n"
      "    \".globl ${symbol}_end\\n.hidden ${symbol}_end\\n${symbol}_end:\\n\"\n")
    string(APPEND declarations "extern const char ${symbol}[], ${symbol}_end[];\n")
    string(APPEND entries "    {\"${source}\", {${symbol}, ${symbol}_end}},\n")
    list(APPEND dependencies ${CMAKE_SOURCE_DIR}/${source})
    math(EXPR number "${number} + 1")
  endforeach()
  find_package(Git QUIET)
  set(commit unknown)
  if(GIT_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
    execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE
      RESULT_VARIABLE status ERROR_QUIET)
    if(status EQUAL 0)
      set(commit ${found})
    endif()
  endif()
  set(output ${CMAKE_BINARY_DIR}/source_files.cpp)
  file(CONFIGURE OUTPUT ${output} CONTENT "// Written by cmake/SourceFiles.cmake.
#include \"inspect/source_text.h\"

asm(\".pushsection .rodata\\n\"
${assembly}    \".popsection\\n\");

extern \"C\" {
${declarations}}

namespace cachalot {
namespace {

const SourceFile kFiles[] = {
${entries}};

}  // namespace

std::span<const SourceFile> source_files() { return kFiles; }
std::string_view source_commit() { return \"${commit}\"; }

}  // namespace cachalot
" @ONLY)
  set_source_files_properties(${output} PROPERTIES OBJECT_DEPENDS "${dependencies}")
  target_sources(${target} PRIVATE ${output})
endfunction()
