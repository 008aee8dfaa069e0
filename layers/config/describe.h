// Descriptions of what a config may contain: interfaces, the classes that implement them, and the fields of classes.
#pragma once

#include <string>
#include <vector>

#include "layers/config/config.h"

namespace meshloom::layers {

struct FieldDescription {
  std::string name;
  std::string type;     // "integer", "number or none", "list of Mask", ...; of a child, its interface
  std::string value;    // the default in the text form; of a child, its class; "required" if there is none
  std::string range;    // "at least 1"; "" = any value
  std::string about;    // a sentence
  std::string meaning;  // see means() in about.h
  std::string former_name;  // "" = none
};

struct ClassDescription {
  std::string name, about;
  std::vector<FieldDescription> fields;
};

struct InterfaceDescription {
  std::string name, about;
  std::vector<std::string> classes;
};

// The interfaces of the children of the table's classes, sorted by name. Interfaces that every class implements, and
// those whose only class has the same name, are left out.
std::vector<InterfaceDescription> describe_interfaces(const ClassTable& classes);
// The names of the interfaces that the class implements.
std::vector<std::string> interfaces_of(const std::vector<InterfaceDescription>& all, const std::string& name);
// Throws Error, with a suggestion, if the class is not in the table.
ClassDescription describe_class(const ClassTable& classes, const std::string& name);

}  // namespace meshloom::layers
