# cmake -D LIST=file -D OUTPUT=file.cpp -P embed_files.cmake
#
# Each line of LIST is "served path|file". Writes the C++ source behind src/server/web_files.h.
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")
set(type_woff2 "font/woff2")
set(type_txt "text/plain; charset=utf-8")

file(STRINGS ${LIST} lines)
set(bytes)
set(declarations)
set(entries)
set(number 0)
foreach(line ${lines})
  string(REGEX MATCH "^([^|]+)[|](.+)$" unused ${line})
  set(path ${CMAKE_MATCH_1})
  set(file ${CMAKE_MATCH_2})
  string(REGEX MATCH "[^.]+$" extension ${path})
  if(NOT DEFINED type_${extension})
    message(FATAL_ERROR "${file}: no content type is known for .${extension} "
                        "(cmake/embed_files.cmake)")
  endif()
  file(SHA256 ${file} digest)
  string(SUBSTRING ${digest} 0 32 digest)
  file(SIZE ${file} size)
  set(symbol cachalot_web_file_${number})
  string(APPEND bytes "    \".globl ${symbol}\\n.hidden ${symbol}\\n${symbol}:\\n\"\n"
                      "    \".incbin \\\"${file}\\\"\\n\"\n")
  string(APPEND declarations "extern const uint8_t ${symbol}[];\n")
  string(APPEND entries "    {\"${path}\", \"${type_${extension}}\", \"\\\"${digest}\\\"\",\n"
                        "     {${symbol}, ${size}}},\n")
  math(EXPR number "${number} + 1")
endforeach()

file(WRITE ${OUTPUT} "// Written by cmake/embed_files.cmake.
#include \"server/web_files.h\"

asm(\".pushsection .rodata\\n.balign 16\\n\"
${bytes}    \".popsection\\n\");

extern \"C\" {
${declarations}}

namespace cachalot {
namespace {

const WebFile kFiles[] = {
${entries}};

}  // namespace

std::span<const WebFile> web_files() { return kFiles; }

const WebFile* find_web_file(std::string_view path) {
  if (path == \"/\") path = \"/index.html\";
  if (path == \"/explore\") path = \"/explore.html\";
  for (const WebFile& file : kFiles) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace cachalot
")
