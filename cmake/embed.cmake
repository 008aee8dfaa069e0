# embed(TARGET NAME FOLDER PATTERN...): compiles the files below FOLDER that match into TARGET, reachable as
#   meshloom::embedded::NAME(), a vector of {file name, text} (declared in the generated embedded_NAME.h).
function(embed target name folder)
  set(patterns ${ARGN})
  list(TRANSFORM patterns PREPEND ${folder}/)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${patterns})
  set(out ${CMAKE_BINARY_DIR}/generated/embedded_${name})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/generated)
  file(WRITE ${CMAKE_BINARY_DIR}/generated/embedded_file.h.tmp "#pragma once\n#include <string_view>\nnamespace meshloom::embedded {\nstruct File { std::string_view name, text; };\n}\n")
  file(WRITE ${out}.h.tmp "#pragma once\n#include <vector>\n#include \"embedded_file.h\"\nnamespace meshloom::embedded {\nconst std::vector<File>& ${name}();\n}\n")
  foreach(pair embedded_file embedded_${name})
    configure_file(${CMAKE_BINARY_DIR}/generated/${pair}.h.tmp ${CMAKE_BINARY_DIR}/generated/${pair}.h COPYONLY)
  endforeach()
  add_custom_command(
    OUTPUT ${out}.cpp
    COMMAND ${CMAKE_COMMAND} -DOUT=${out}.cpp -DNAME=${name} "-DFILES=${files}" -P ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
    VERBATIM)
  # an object library, since a custom command serves only targets of its own folder
  add_library(embedded_${name} OBJECT ${out}.cpp)
  target_include_directories(embedded_${name} PRIVATE ${CMAKE_BINARY_DIR}/generated)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:embedded_${name}>)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endfunction()
