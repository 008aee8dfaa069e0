# functions(OUT REGEX FILE...): the names of the functions that the files define at the start of a line. REGEX matches such
# a line, and its first group is the name. Tables made from them need no edit for a new file.
function(functions out regex)
  set(names "")
  foreach(file ${ARGN})
    file(STRINGS ${file} lines REGEX "${regex}")
    foreach(line ${lines})
      string(REGEX REPLACE "${regex}.*" "\\1" name "${line}")
      list(APPEND names ${name})
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  set(${out} ${names} PARENT_SCOPE)
endfunction()
