# Rules about the source text itself, as tests beside the others.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(check layers docs notation)
  add_test(NAME repository.${check}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_${check}.py)
endforeach()
