#include "trainer/inference/grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "trainer/inference/grammar/json_number_range.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

const std::set<std::string>& annotations() {
  static const std::set<std::string> kNames{"title", "description", "default",      "examples", "$schema",
                                            "$id",   "$comment",    "deprecated",   "readOnly", "writeOnly",
                                            "$defs", "definitions", "discriminator"};
  return kNames;
}

// By the type that a keyword is about; "" = all.
const std::map<std::string, std::string>& keywords() {
  static const std::map<std::string, std::string> kTypes{{"type", ""},
                                                         {"enum", ""},
                                                         {"const", ""},
                                                         {"anyOf", ""},
                                                         {"oneOf", ""},
                                                         {"allOf", ""},
                                                         {"$ref", ""},
                                                         {"properties", "object"},
                                                         {"required", "object"},
                                                         {"additionalProperties", "object"},
                                                         {"items", "array"},
                                                         {"prefixItems", "array"},
                                                         {"minItems", "array"},
                                                         {"maxItems", "array"},
                                                         {"minLength", "string"},
                                                         {"maxLength", "string"},
                                                         {"pattern", "string"},
                                                         {"format", "string"},
                                                         {"minimum", "number"},
                                                         {"maximum", "number"},
                                                         {"exclusiveMinimum", "number"},
                                                         {"exclusiveMaximum", "number"}};
  return kTypes;
}

// Keywords that are not built but for a value that means nothing.
const std::map<std::string, SchemaJson>& without_meaning() {
  static const std::map<std::string, SchemaJson> kValues{{"uniqueItems", false},
                                                         {"minProperties", 0},
                                                         {"patternProperties", SchemaJson::object()},
                                                         {"dependentRequired", SchemaJson::object()},
                                                         {"dependentSchemas", SchemaJson::object()},
                                                         {"propertyNames", true}};
  return kValues;
}

const std::set<std::string>& all_types() {
  static const std::set<std::string> kTypes{"array", "boolean", "null", "number", "object", "string"};
  return kTypes;
}

std::string unescaped_pointer(std::string part) {
  for (const auto& [from, to] : {std::pair{"~1", "/"}, {"~0", "~"}})
    for (std::size_t at = 0; (at = part.find(from, at)) != std::string::npos; ++at) part.replace(at, 2, to);
  return part;
}

std::size_t size_of_value(const SchemaJson& json) {
  std::size_t size = 1;
  if (json.is_structured())
    for (const auto& each : json) size += size_of_value(each);
  return size;
}

// integer is part of number.
std::set<std::string> common_types(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::set<std::string> common;
  for (const std::string& type : a)
    if (b.contains(type) || (type == "integer" && b.contains("number"))) common.insert(type);
  if (b.contains("integer") && a.contains("number")) common.insert("integer");
  return common;
}

}  // namespace

bool constrains(const SchemaJson& schema) {
  if (!schema.is_object()) return schema == false;
  for (const auto& [name, value] : schema.items())
    if (keywords().contains(name)) return true;
  return false;
}

std::string type_of_value(const SchemaJson& value) {
  if (value.is_number_float())
    return std::floor(value.get<double>()) == value.get<double>() ? "integer" : "number";
  if (value.is_number()) return "integer";
  return value.is_string()    ? "string"
         : value.is_boolean() ? "boolean"
         : value.is_null()    ? "null"
         : value.is_array()   ? "array"
                              : "object";
}

std::int64_t bound_of_count(const SchemaJson& value, const std::string& at) {
  if (type_of_value(value) != "integer" || value.get<double>() < 0)
    throw Error(at, "must be a natural number", shown_json(value));
  if (value.get<double>() > static_cast<double>(GrammarBuilder::kStates))
    throw Error(at, fmt::format("must be at most {}", GrammarBuilder::kStates), shown_json(value));
  return value.get<std::int64_t>();
}

void JsonSchema::work(const SchemaJson& schema, const std::string& at) {
  if ((work_ += size_of_value(schema)) > kWork)
    throw Error(at, fmt::format("a schema must compile by looking at {} values, within a second", kWork),
                "more");
}

const SchemaJson& JsonSchema::target(const std::string& reference, const std::string& at) const {
  const auto refuse = [&](const char* rule) { throw Error(at + "/$ref", rule, shown(reference)); };
  if (reference != "#" && !reference.starts_with("#/"))
    refuse("must refer to a place in the schema itself, such as #/$defs/NAME");
  std::string decoded;
  for (std::size_t i = 1; i < reference.size(); ++i) {
    const std::string hex = reference.substr(i + 1, 2);
    if (reference[i] == '%' && hex.size() == 2 && std::isxdigit(static_cast<unsigned char>(hex[0])) &&
        std::isxdigit(static_cast<unsigned char>(hex[1]))) {
      decoded += static_cast<char>(std::stoi(hex, nullptr, 16));
      i += 2;
    } else {
      decoded += reference[i];
    }
  }
  const SchemaJson* here = &root_;
  for (std::size_t at_part = 1; at_part <= decoded.size();) {
    const std::size_t end = std::min(decoded.find('/', at_part), decoded.size());
    const std::string part = unescaped_pointer(decoded.substr(at_part, end - at_part));
    at_part = end + 1;
    if (here->is_object() && here->contains(part)) {
      here = &(*here)[part];
    } else if (std::size_t index = 0;
               here->is_array() && !part.empty() && part.size() < 6 &&
               std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
               (index = std::stoul(part)) < here->size()) {
      here = &(*here)[index];
    } else {
      refuse("must refer to a place that the schema has");
    }
  }
  return *here;
}

void JsonSchema::check_keywords(const SchemaJson& schema, const std::string& at) const {
  if (schema.is_boolean()) return;
  if (!schema.is_object()) throw Error(at, "a schema must be an object, true or false", shown_json(schema));
  for (const auto& [name, value] : schema.items()) {
    const std::string place = at + "/" + name;
    if (name == "$id" && at != "#") throw Error(place, "must stand at the root only", shown_json(value));
    if (annotations().contains(name) || keywords().contains(name)) continue;
    const auto neutral = without_meaning().find(name);
    if (neutral != without_meaning().end() && neutral->second == value) continue;
    throw Error(place, "is a keyword that is not built here, so the schema must be without it",
                shown_json(value));
  }
}

SchemaJson JsonSchema::flat(const SchemaJson& schema, const std::string& at, int depth) {
  if (depth > kDepth)
    throw Error(at, fmt::format("references and allOf must be nested at most {} deep", kDepth), "more");
  check_keywords(schema, at);
  work(schema, at);
  if (!schema.is_object()) return schema;
  SchemaJson rest = schema;
  rest.erase("$ref");
  rest.erase("allOf");
  if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    if (!reference->is_string()) throw Error(at + "/$ref", "must be text", shown_json(*reference));
    const auto& name = reference->get_ref<const std::string&>();
    rest = both(rest, flat(target(name, at), name, depth + 1), at);
  }
  if (const auto all = schema.find("allOf"); all != schema.end()) {
    if (!all->is_array() || all->empty())
      throw Error(at + "/allOf", "must be a list of schemas", shown_json(*all));
    for (std::size_t i = 0; i < all->size(); ++i)
      rest = both(rest, flat((*all)[i], fmt::format("{}/allOf/{}", at, i), depth + 1), at);
  }
  return rest;
}

std::set<std::string> JsonSchema::types(const SchemaJson& schema, const std::string& at,
                                        bool standard) const {
  if (schema == false) return {};
  std::set<std::string> found;
  const auto type = schema.is_object() ? schema.find("type") : schema.end();
  if (schema.is_object() && type != schema.end()) {
    const auto add = [&](const SchemaJson& name) {
      if (!name.is_string() || (name != "integer" && !all_types().contains(name.get<std::string>())))
        throw Error(at + "/type", "must be a type of JSON or a list of them", shown_json(*type));
      found.insert(name.get<std::string>());
    };
    if (type->is_array())
      for (const auto& each : *type) add(each);
    else
      add(*type);
    if (found.contains("number")) found.erase("integer");
    return found;
  }
  if (!standard && schema.is_object())
    for (const auto& [name, value] : schema.items())
      if (const auto known = keywords().find(name); known != keywords().end() && !known->second.empty())
        found.insert(known->second);
  return found.empty() ? all_types() : found;
}

SchemaJson JsonSchema::both(const SchemaJson& a, const SchemaJson& b, const std::string& at) {
  if (a == false || b == false) return false;
  if (!constrains(a)) return b;
  if (!constrains(b)) return a;
  work(a, at);
  work(b, at);
  SchemaJson joined = a;
  const auto refuse = [&](const std::string& name) {
    throw Error(at, "schemas that are joined must not both have " + name, shown_json(b[name]));
  };
  // Properties that only one of them names are further ones of the other.
  SchemaJson properties = SchemaJson::object();
  const auto part = [](const SchemaJson& schema, const char* name) {
    return schema.contains(name) ? schema[name] : SchemaJson();
  };
  const auto object_part = [&](const SchemaJson& schema) {
    const SchemaJson named = part(schema, "properties");
    if (!named.is_null() && !named.is_object())
      throw Error(at + "/properties", "must be an object", shown_json(named));
    return named.is_null() ? SchemaJson::object() : named;
  };
  const SchemaJson of_a = object_part(a), of_b = object_part(b);
  const SchemaJson more_a = part(a, "additionalProperties"), more_b = part(b, "additionalProperties");
  const auto join = [](const SchemaJson& one, const SchemaJson& other) {
    return one.is_null()     ? other
           : other.is_null() ? one
                             : SchemaJson{{"allOf", SchemaJson::array({one, other})}};
  };
  for (const auto& [name, value] : of_a.items())
    properties[name] = join(value, of_b.contains(name) ? of_b[name] : more_b);
  for (const auto& [name, value] : of_b.items())
    if (!of_a.contains(name)) properties[name] = join(value, more_a);
  for (const auto& [name, value] : b.items()) {
    if (!keywords().contains(name) || name == "properties") continue;
    const bool twice = a.contains(name);
    if (name == "additionalProperties") {
      joined[name] = join(more_a, more_b);
    } else if (name == "type") {
      if (!twice) {
        joined[name] = value;
        continue;
      }
      const auto common = common_types(types(a, at, true), types(b, at, true));
      if (common.empty()) return false;
      joined[name] = SchemaJson(std::vector<std::string>(common.begin(), common.end()));
    } else if (name == "enum" || name == "const") {
      const SchemaJson values = name == "const" ? SchemaJson::array({value}) : value;
      if (!values.is_array()) throw Error(at + "/enum", "must be a list of values", shown_json(values));
      SchemaJson common = SchemaJson::array();
      for (const auto& each : values) {
        const bool in_enum =
            !joined.contains("enum") ||
            std::find(joined["enum"].begin(), joined["enum"].end(), each) != joined["enum"].end();
        if (in_enum && (!joined.contains("const") || joined["const"] == each)) common.push_back(each);
      }
      joined.erase("const");
      joined["enum"] = common;
    } else if (!twice) {
      joined[name] = value;
    } else if (name == "required") {
      if (!value.is_array() || !a[name].is_array())
        throw Error(at + "/required", "must be a list of names", shown_json(value));
      for (const auto& each : value)
        if (std::find(joined[name].begin(), joined[name].end(), each) == joined[name].end())
          joined[name].push_back(each);
    } else if (name == "minimum" || name == "maximum" || name == "exclusiveMinimum" ||
               name == "exclusiveMaximum") {
      const int order = compare_bounds(number_bound(value, false, at + "/" + name),
                                       number_bound(a[name], false, at + "/" + name));
      if (name.ends_with("inimum") ? order > 0 : order < 0) joined[name] = value;
    } else if (name.starts_with("min") || name.starts_with("max")) {
      const std::int64_t mine = bound_of_count(a[name], at + "/" + name),
                         other = bound_of_count(value, at + "/" + name);
      joined[name] = name.starts_with("min") ? std::max(mine, other) : std::min(mine, other);
    } else if (name == "items" && !a.contains("prefixItems") && !b.contains("prefixItems")) {
      joined[name] = join(a[name], value);
    } else if (a[name] != value) {
      refuse(name);
    }
  }
  if (a.contains("prefixItems") != b.contains("prefixItems") && (a.contains("items") || b.contains("items")))
    throw Error(at, "schemas that are joined must not have prefixItems and items of different ones",
                shown_json(b));
  if (!properties.empty() || a.contains("properties") || b.contains("properties"))
    joined["properties"] = properties;
  return joined;
}

bool JsonSchema::disjoint(const SchemaJson& a, const SchemaJson& b, const std::string& at, int depth) {
  if (a == false || b == false) return true;
  if (!a.is_object() || !b.is_object() || depth > 8) return false;
  work(a, at);
  work(b, at);
  const auto values = [](const SchemaJson& schema) {
    return schema.contains("const")  ? SchemaJson::array({schema["const"]})
           : schema.contains("enum") ? schema["enum"]
                                     : SchemaJson();
  };
  const SchemaJson of_a = values(a), of_b = values(b);
  if (of_a.is_array() && of_b.is_array())
    return std::none_of(of_a.begin(), of_a.end(), [&](const auto& each) {
      return std::find(of_b.begin(), of_b.end(), each) != of_b.end();
    });
  const auto types_of = [&](const SchemaJson& schema, const SchemaJson& listed, bool by_standard) {
    if (!listed.is_array()) return types(schema, at, by_standard);
    std::set<std::string> found;
    for (const auto& each : listed) found.insert(type_of_value(each));
    return found;
  };
  std::set<std::string> common = common_types(types_of(a, of_a, standard_), types_of(b, of_b, true));
  common.merge(common_types(types_of(b, of_b, standard_), types_of(a, of_a, true)));
  if (common.empty()) return true;
  if (common != std::set<std::string>{"object"} || !a.contains("properties") || !b.contains("properties") ||
      !a.contains("required") || !b.contains("required"))
    return false;
  for (const auto& name : a["required"]) {
    if (!name.is_string() ||
        std::find(b["required"].begin(), b["required"].end(), name) == b["required"].end())
      continue;
    const auto& key = name.get_ref<const std::string&>();
    if (a["properties"].contains(key) && b["properties"].contains(key) &&
        disjoint(flat(a["properties"][key], at), flat(b["properties"][key], at), at, depth + 1))
      return true;
  }
  return false;
}

}  // namespace meshloom::trainer
