// Schemas of JSON as values: which keywords are taken, references, and several schemas as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace meshloom::trainer {

using SchemaJson = nlohmann::ordered_json;

class JsonSchema {
 public:
  static constexpr int kDepth = 32;
  static constexpr std::size_t kWork = 400'000;  // values that are looked at

  // `standard`: a schema that says nothing of a type has this type too, as the standard has it.
  // `work`: what was looked at before, for other schemas of the same grammar.
  JsonSchema(SchemaJson root, bool standard, std::size_t work = 0)
      : root_(std::move(root)), standard_(standard), work_(work) {}

  // What a reference means. Throws Error (where = `at`).
  const SchemaJson& target(const std::string& reference, const std::string& at) const;
  // Throws Error for a keyword that is not taken, at its place.
  void check_keywords(const SchemaJson& schema, const std::string& at) const;

  // The same without $ref and allOf; true, false or an object.
  SchemaJson flat(const SchemaJson& schema, const std::string& at, int depth = 0);
  // What both allow, of two that are flat. Parts are joined by allOf.
  SchemaJson both(const SchemaJson& a, const SchemaJson& b, const std::string& at);
  // The types that a flat schema allows: those that it names, else those that its keywords are about, else all. By the standard
  // also all where it names none.
  std::set<std::string> types(const SchemaJson& schema, const std::string& at, bool standard) const;
  // Whether no value that is written for one is allowed by the other, as far as can be seen.
  bool disjoint(const SchemaJson& a, const SchemaJson& b, const std::string& at, int depth = 0);

  // Counts work. Throws Error beyond kWork.
  void work(const SchemaJson& schema, const std::string& at);
  std::size_t work() const { return work_; }
  bool standard() const { return standard_; }

 private:
  const SchemaJson root_;
  const bool standard_;
  std::size_t work_;
};

// Whether a schema says anything but titles and the like.
bool constrains(const SchemaJson& schema);
// A bound such as minItems. Throws Error (where = `at`).
std::int64_t bound_of_count(const SchemaJson& value, const std::string& at);
// "string", "integer" for whole numbers, ...
std::string type_of_value(const SchemaJson& value);

}  // namespace meshloom::trainer
