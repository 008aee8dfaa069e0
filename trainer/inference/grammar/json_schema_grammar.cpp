#include "trainer/inference/grammar/json_schema_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "trainer/data/tokenizer/unicode.h"
#include "trainer/inference/grammar/json_formats.h"
#include "trainer/inference/grammar/json_grammar.h"
#include "trainer/inference/grammar/json_number_range.h"
#include "trainer/inference/grammar/json_schema.h"
#include "trainer/inference/grammar/regex_grammar.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

class JsonSchemaGrammar {
 public:
  using State = GrammarBuilder::State;
  using Part = GrammarBuilder::Part;
  JsonSchemaGrammar(JsonSchema& schema, GrammarBuilder& builder, JsonGrammar& json)
      : schema_(schema), builder_(builder), json_(json) {}

  SharedGrammar build(const SchemaJson& flat, const std::string& at) {
    const auto rule = builder_.add_rule(at);
    builder_.empty(append(builder_.begin(rule), flat, at, 0), builder_.end(rule));
    return builder_.build(rule);
  }
  GrammarBuilder::Rule rule_of(const std::string& reference) {
    if (const auto found = rules_.find(reference); found != rules_.end()) return found->second;
    const SchemaJson& target = schema_.target(reference, reference);
    const auto rule = builder_.add_rule(reference);
    rules_[reference] = rule;
    builder_.empty(append(builder_.begin(rule), target, reference, 0), builder_.end(rule));
    return rule;
  }

 private:
  State append(State from, const SchemaJson& schema, const std::string& at, int depth) {
    if (depth > JsonSchema::kDepth)
      throw Error(at, fmt::format("a schema must be nested at most {} deep", JsonSchema::kDepth), "more");
    schema_.check_keywords(schema, at);
    if (schema == false) return builder_.add_state();  // nothing leads on
    if (!constrains(schema)) return json_.value(from);
    if (schema.contains("$ref") && schema["$ref"].is_string() && only(schema, "$ref")) {
      const auto& name = schema["$ref"].get_ref<const std::string&>();
      schema_.target(name, at);  // else the error would not name the place
      return builder_.called(from, rule_of(name));
    }
    const SchemaJson flat = schema_.flat(schema, at);
    for (const char* name : {"anyOf", "oneOf"})
      if (flat.is_object() && flat.contains(name)) return alternatives(from, flat, name, at, depth);
    return typed(from, flat, at, depth);
  }

  // Whether a schema says nothing else.
  static bool only(const SchemaJson& schema, const char* name) {
    SchemaJson rest = schema;
    rest.erase(name);
    return !constrains(rest);
  }

  State alternatives(State from, const SchemaJson& flat, const char* name, const std::string& at, int depth) {
    const std::string place = at + "/" + name;
    SchemaJson base = flat;
    base.erase(name);
    const SchemaJson& list = flat[name];
    if (!list.is_array() || list.empty()) throw Error(place, "must be a list of schemas", shown_json(list));
    if (base.contains("anyOf") || base.contains("oneOf"))
      throw Error(place, "must not stand beside anyOf", shown_json(list));
    const bool plain = !constrains(base);
    const bool one = name == std::string("oneOf");
    std::vector<SchemaJson> parts;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string here = fmt::format("{}/{}", place, i);
      schema_.check_keywords(list[i], here);
      if (one || !plain) {
        SchemaJson part = schema_.flat(list[i], here);
        if (!plain) part = schema_.both(base, part, here);
        parts.push_back(std::move(part));
      }
      for (std::size_t k = 0; one && k < i; ++k)
        if (!schema_.disjoint(parts[k], parts[i], here))
          throw Error(place,
                      "alternatives must exclude each other by their types, constants, or a required "
                      "property's constants; else "
                      "take anyOf",
                      fmt::format("alternatives {} and {}", k, i));
    }
    std::vector<Part> branches;
    for (std::size_t i = 0; i < list.size(); ++i)
      branches.emplace_back([&, i](State s) {
        return append(s, plain ? list[i] : parts[i], fmt::format("{}/{}", place, i), depth + 1);
      });
    return builder_.any_of(from, branches);
  }

  // A schema without references and alternatives.
  State typed(State from, const SchemaJson& schema, const std::string& at, int depth) {
    if (schema == false) return builder_.add_state();
    if (!constrains(schema)) return json_.value(from);
    if (schema.contains("enum") || schema.contains("const")) return values(from, schema, at);
    std::vector<Part> branches;
    for (const std::string& type : schema_.types(schema, at, schema_.standard()))
      branches.emplace_back([&, type](State s) { return of_type(s, type, schema, at, depth); });
    return branches.size() == 1 ? branches[0](from) : builder_.any_of(from, branches);
  }

  State of_type(State from, const std::string& type, const SchemaJson& schema, const std::string& at,
                int depth) {
    if (type == "null") return builder_.literal(from, "null");
    if (type == "boolean")
      return builder_.any_of(from, {[&](State s) { return builder_.literal(s, "true"); },
                                    [&](State s) { return builder_.literal(s, "false"); }});
    if (type == "string") return string(from, schema, at);
    if (type == "array") return array(from, schema, at, depth);
    if (type == "object") return object(from, schema, at, depth);
    return number(from, schema, at, type == "number");
  }

  State value_text(State from, const SchemaJson& value) {
    if (value.is_string()) return builder_.literal(from, json_text(value.get_ref<const std::string&>()));
    if (value.is_array()) {
      std::vector<Part> parts;
      for (const auto& each : value) parts.emplace_back([&](State s) { return value_text(s, each); });
      const auto size = static_cast<std::int64_t>(value.size());
      return json_.array(from, parts, {}, size, size);
    }
    if (value.is_object()) {
      std::vector<JsonGrammar::Property> parts;
      for (const auto& [name, each] : value.items())
        parts.push_back({name, [&, name = name](State s) { return value_text(s, value[name]); }, true});
      return json_.object(from, parts, {});
    }
    return builder_.literal(from, value.dump());
  }

  State values(State from, const SchemaJson& schema, const std::string& at) {
    SchemaJson listed = schema.contains("enum") ? schema["enum"] : SchemaJson::array({schema["const"]});
    if (!listed.is_array()) throw Error(at + "/enum", "must be a list of values", shown_json(listed));
    SchemaJson rest = schema;
    rest.erase("enum");
    rest.erase("const");
    const bool by_type = !constrains(rest) || only(rest, "type");
    const auto types = schema_.types(rest, at, true);
    SharedGrammar others;
    std::vector<Part> branches;
    for (const auto& value : listed) {
      if (schema.contains("const") && schema["const"] != value) continue;
      const std::string type = type_of_value(value);
      if (!types.contains(type) && !(type == "integer" && types.contains("number"))) continue;
      if (!by_type) {
        if (value.is_structured())
          throw Error(at, "an enum or const with lists or objects must stand beside nothing but type",
                      shown_json(value));
        if (!others) {
          GrammarBuilder builder("schema");
          JsonGrammar json(builder);
          others = JsonSchemaGrammar(schema_, builder, json).build(rest, at);
        }
        if (!others->accepts(value.is_string() ? json_text(value.get_ref<const std::string&>())
                                               : value.dump()))
          continue;
      }
      branches.emplace_back([&](State s) { return value_text(s, value); });
    }
    return builder_.any_of(from, branches);
  }

  static std::int64_t count(const SchemaJson& schema, const char* name, std::int64_t otherwise,
                            const std::string& at) {
    const auto found = schema.find(name);
    return found == schema.end() ? otherwise : bound_of_count(*found, at + "/" + name);
  }

  State string(State from, const SchemaJson& schema, const std::string& at) {
    const bool pattern = schema.contains("pattern"), format = schema.contains("format");
    const bool length = schema.contains("minLength") || schema.contains("maxLength");
    if (pattern + format + length > 1)
      throw Error(at, "a string must have one of pattern, format and bounds of its length", "several");
    if (!pattern && !format) {
      const std::int64_t min = count(schema, "minLength", 0, at),
                         max = count(schema, "maxLength", GrammarBuilder::kNoBound, at);
      if (max != GrammarBuilder::kNoBound && max < min) return builder_.add_state();
      return json_.string(from, min, max);
    }
    const std::string place = at + (pattern ? "/pattern" : "/format");
    const SchemaJson& given = schema[pattern ? "pattern" : "format"];
    if (!given.is_string()) throw Error(place, "must be text", shown_json(given));
    std::string text = given.get<std::string>();
    if (format) {
      const auto known = pattern_of_format(text);
      if (!known)
        throw Error(place, "must be date, time, date-time, uuid or ipv4; others are not built", shown(text));
      text = *known;
    }
    const State inside = builder_.literal(from, "\"");
    return builder_.literal(append_regex(builder_, inside, text, Spelling::json, true, place), "\"");
  }

  State number(State from, const SchemaJson& schema, const std::string& at, bool fractions) {
    std::optional<NumberBound> low, high;
    for (const char* name : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      if (!schema.contains(name)) continue;
      const bool exclusive = std::string_view(name).starts_with("exclusive");
      const bool is_low = std::string_view(name).ends_with("inimum");
      NumberBound bound = number_bound(schema[name], exclusive, at + "/" + name);
      std::optional<NumberBound>& kept = is_low ? low : high;
      const int order = kept ? compare_bounds(bound, *kept) : 0;
      if (!kept || (is_low ? order > 0 : order < 0) || (order == 0 && exclusive)) kept = std::move(bound);
    }
    if (!low && !high) return fractions ? json_.number(from) : json_.integer(from);
    return append_number_range(builder_, from, low, high, fractions);
  }

  State array(State from, const SchemaJson& schema, const std::string& at, int depth) {
    const std::int64_t min = count(schema, "minItems", 0, at);
    std::int64_t max = count(schema, "maxItems", GrammarBuilder::kNoBound, at);
    std::vector<Part> prefix;
    if (const auto list = schema.find("prefixItems"); list != schema.end()) {
      if (!list->is_array()) throw Error(at + "/prefixItems", "must be a list of schemas", shown_json(*list));
      for (std::size_t i = 0; i < list->size(); ++i)
        prefix.emplace_back([&, list, i](State s) {
          return append(s, (*list)[i], fmt::format("{}/prefixItems/{}", at, i), depth + 1);
        });
    }
    const SchemaJson items = schema.contains("items") ? schema["items"] : SchemaJson(true);
    if (items.is_array())
      throw Error(at + "/items", "must be a schema; a list of schemas is prefixItems", shown_json(items));
    if (items == false)
      max = max == GrammarBuilder::kNoBound ? static_cast<std::int64_t>(prefix.size())
                                            : std::min(max, static_cast<std::int64_t>(prefix.size()));
    if (max != GrammarBuilder::kNoBound && max < min) return builder_.add_state();
    // What stands many times in the grammar is a rule.
    const bool many = min > 2 || max > 2;
    std::optional<GrammarBuilder::Rule> rule;
    const auto item = [&](State s) {
      const std::string place = at + "/items";
      if (!many || !constrains(items)) return append(s, items, place, depth + 1);
      if (!rule) {
        rule = builder_.add_rule(place);
        builder_.empty(append(builder_.begin(*rule), items, place, depth + 1), builder_.end(*rule));
      }
      return builder_.called(s, *rule);
    };
    return json_.array(from, prefix, item, min, max);
  }

  State object(State from, const SchemaJson& schema, const std::string& at, int depth) {
    std::vector<std::string> required;
    if (const auto list = schema.find("required"); list != schema.end()) {
      if (!list->is_array()) throw Error(at + "/required", "must be a list of names", shown_json(*list));
      for (const auto& each : *list) {
        if (!each.is_string()) throw Error(at + "/required", "must be a list of names", shown_json(each));
        required.push_back(each.get<std::string>());
      }
    }
    const auto is_required = [&](const std::string& name) {
      return std::find(required.begin(), required.end(), name) != required.end();
    };
    const bool named = schema.contains("properties");
    std::optional<SchemaJson> further;  // none = no others
    if (schema.contains("additionalProperties"))
      further = schema["additionalProperties"];
    else if (schema_.standard() || (!named && required.empty()))
      further = true;
    if (further == SchemaJson(false)) further.reset();
    std::vector<JsonGrammar::Property> properties;
    const auto add = [&](const std::string& name, SchemaJson value, const std::string& place) {
      if (const std::size_t bad = first_bad_byte(name); bad != std::string::npos)
        throw Error(place, "a name must be without NUL", shown(name));
      properties.push_back({name,
                            [this, value = std::move(value), place, depth](State s) {
                              return append(s, value, place, depth + 1);
                            },
                            is_required(name)});
    };
    if (named) {
      if (!schema["properties"].is_object())
        throw Error(at + "/properties", "must be an object", shown_json(schema["properties"]));
      for (const auto& [name, value] : schema["properties"].items())
        add(name, value, at + "/properties/" + name);
    }
    for (const std::string& name : required) {  // further ones that must be there
      const bool known = std::any_of(properties.begin(), properties.end(),
                                     [&](const auto& each) { return each.name == name; });
      if (!known)
        add(name, schema.contains("additionalProperties") ? schema["additionalProperties"] : SchemaJson(true),
            at + "/required");
    }
    std::optional<Part> more;
    if (further) more = [&](State s) { return append(s, *further, at + "/additionalProperties", depth + 1); };
    return json_.object(from, properties, more);
  }

  JsonSchema& schema_;
  GrammarBuilder& builder_;
  JsonGrammar& json_;
  std::map<std::string, GrammarBuilder::Rule> rules_;
};

int depth_of(const SchemaJson& json) {
  int deepest = 0;
  if (json.is_structured())
    for (const auto& each : json) deepest = std::max(deepest, depth_of(each));
  return deepest + 1;
}

GrammarBuilder::Rule rule_of_schema(GrammarBuilder& builder, JsonGrammar& json, const SchemaJson& schema,
                                    std::size_t& work, const JsonSchemaOptions& options) {
  const std::string text = schema.dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
  if (text.size() > kGrammarBytes)
    throw Error("#", fmt::format("a schema must have at most {} bytes", kGrammarBytes),
                std::to_string(text.size()));
  // A level of a schema is up to two of its JSON.
  if (depth_of(schema) > 2 * JsonSchema::kDepth + 2)
    throw Error("#", fmt::format("a schema must be nested at most {} deep", JsonSchema::kDepth), "more");
  JsonSchema known(schema, options.standard, work);
  const auto rule = JsonSchemaGrammar(known, builder, json).rule_of("#");
  work = known.work();
  return rule;
}

}  // namespace

SharedGrammar grammar_of_json_schema(const nlohmann::ordered_json& schema, const JsonSchemaOptions& options) {
  GrammarBuilder builder("schema");
  JsonGrammar json(builder);
  std::size_t work = 0;
  return builder.build(rule_of_schema(builder, json, schema, work, options));
}

GrammarBuilder::State append_json_schema(GrammarBuilder& builder, JsonGrammar& json,
                                         GrammarBuilder::State from, const nlohmann::ordered_json& schema,
                                         std::size_t& work, const JsonSchemaOptions& options) {
  return builder.called(from, rule_of_schema(builder, json, schema, work, options));
}

}  // namespace meshloom::trainer
