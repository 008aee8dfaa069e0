// What there is to choose from: interfaces, the classes that can stand where one is taken, and their fields.
#pragma once

#include <string>
#include <vector>

#include "layers/config/config.h"

namespace meshloom::layers {

struct FieldDescription {
  std::string name;
  std::string type;         // "integer", "number or none", "list of Mask", ...; a child's is its interface
  std::string value;        // by default, in the text form; a child's is its class. "required": there is none
  std::string range;        // "at least 1"; "" = any value
  std::string about;        // a sentence
  std::string meaning;      // see means() in about.h
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

// The interfaces that fields of the table's classes take, by name: those for any class, and those that one class alone
// could stand for, are left out.
std::vector<InterfaceDescription> describe_interfaces(const ClassTable& classes);
// The names of those that the class can stand for.
std::vector<std::string> interfaces_of(const std::vector<InterfaceDescription>& all, const std::string& name);
// Throws Error, with a suggestion, on a class that is not in the table.
ClassDescription describe_class(const ClassTable& classes, const std::string& name);

}  // namespace meshloom::layers
