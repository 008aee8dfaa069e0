# class_table(TARGET FUNCTION HEADER PREFIX FILE...): the definition of FUNCTION(ClassTable&), which HEADER declares, as a
# source of TARGET. It calls every `void add_<file>_classes(PREFIX ClassTable&)` that the files define for the configs they
# hold, so that a file with a new class edits none.
include(functions)
function(class_table target function header prefix)
  functions(names "^void (add_[a-z0-9_]+_classes)\\(${prefix}ClassTable" ${ARGN})
  list(REMOVE_ITEM names ${function})
  string(REGEX REPLACE "/.*" "" room ${header})
  set(declarations "")
  set(calls "")
  foreach(name ${names})
    string(APPEND declarations "void ${name}(layers::ClassTable&);\n")
    string(APPEND calls "  ${name}(classes);\n")
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/generated/${function}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT
"#include \"${header}\"
namespace meshloom::${room} {
${declarations}
void ${function}(layers::ClassTable& classes) {
${calls}}
}  // namespace meshloom::${room}
")
  target_sources(${target} PRIVATE ${source})
endfunction()
