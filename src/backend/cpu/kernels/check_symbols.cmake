# cmake -DNM=nm -DOBJECTS=a.o;b.o -P check_symbols.cmake: fails on a weak symbol.
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} -C ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]* [WVuvw] [^\n]*" weak "${symbols}")
  if(weak)
    message(SEND_ERROR "${object} has weak symbols: ${weak}")
  endif()
endforeach()
