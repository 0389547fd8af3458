# cachalot_web: the page's own files (web/) and the libraries it uses, from Debian's packages, as
# bytes inside the program. src/server/web_files.h looks them up by the path they are served under.
#
# The assembler takes the bytes in (.incbin): text arrays of a megabyte would take the compiler
# longer than the rest of the server.
set(vendor /usr/share/javascript)
set(CACHALOT_WEB_FILES)  # "served path|file" each

function(cachalot_web_file path file)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "${file} not found: the web page needs it. Install the packages with "
                        "tools/install_packages.sh, then configure again.")
  endif()
  set(CACHALOT_WEB_FILES ${CACHALOT_WEB_FILES} "${path}|${file}" PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE page_files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/web
  ${CMAKE_SOURCE_DIR}/web/*)
foreach(file ${page_files})
  cachalot_web_file(/${file} ${CMAKE_SOURCE_DIR}/web/${file})
endforeach()
cachalot_web_file(/vendor/marked.min.js ${vendor}/marked/marked.min.js)
cachalot_web_file(/vendor/purify.min.js /usr/share/nodejs/dompurify/dist/purify.min.js)
cachalot_web_file(/vendor/highlight.min.js ${vendor}/highlight.js/highlight.min.js)
cachalot_web_file(/vendor/katex/katex.min.js ${vendor}/katex/katex.min.js)
cachalot_web_file(/vendor/katex/katex.min.css ${vendor}/katex/katex.min.css)
# Every browser the page runs in reads woff2, the first format that the style sheet offers.
file(GLOB fonts /usr/share/fonts/truetype/katex/*.woff2)
if(NOT fonts)
  message(FATAL_ERROR "KaTeX's fonts not found: install the packages with "
                      "tools/install_packages.sh, then configure again.")
endif()
foreach(font ${fonts})
  get_filename_component(name ${font} NAME)
  cachalot_web_file(/vendor/katex/fonts/${name} ${font})
endforeach()

# What the licenses of those libraries ask to be passed on.
foreach(package libjs-marked node-dompurify libjs-katex libjs-highlight.js)
  cachalot_web_file(/vendor/licenses/${package}.txt /usr/share/doc/${package}/copyright)
endforeach()

set(web_source ${CMAKE_BINARY_DIR}/web_files.cpp)
set(web_list ${CMAKE_BINARY_DIR}/web_files.txt)
list(SORT CACHALOT_WEB_FILES)
list(JOIN CACHALOT_WEB_FILES "\n" web_lines)
file(CONFIGURE OUTPUT ${web_list} CONTENT "${web_lines}\n" @ONLY)
list(TRANSFORM CACHALOT_WEB_FILES REPLACE "^[^|]*[|]" "" OUTPUT_VARIABLE web_dependencies)
add_custom_command(OUTPUT ${web_source}
  COMMAND ${CMAKE_COMMAND} -D LIST=${web_list} -D OUTPUT=${web_source}
    -P ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
  DEPENDS ${web_list} ${web_dependencies} ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
  COMMENT "Embedding the web page" VERBATIM)
set_source_files_properties(${web_source} PROPERTIES OBJECT_DEPENDS "${web_dependencies}")
add_library(cachalot_web STATIC ${web_source})
target_link_libraries(cachalot_web PUBLIC cachalot_options)
