// Reads the fields of a request's body, which is untrusted JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

using RequestJson = nlohmann::ordered_json;

// The body as a JSON object, nested at most 64 levels deep. Throws ApiError, which names the first byte that is not UTF-8.
RequestJson parse_body(std::string_view body);

// What an error says about a value: short and printable.
std::string shown_value(const RequestJson& value);

// Fields of an object by name. One that is null counts as missing. Every read of a field makes it known; wrong types and values
// are ApiErrors that name the field.
class RequestFields {
 public:
  // `prefix` stands before the names in errors ("stream_options.").
  explicit RequestFields(const RequestJson& object, std::string prefix = {});

  const RequestJson* find(const std::string& name);
  std::optional<bool> boolean(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t min, std::int64_t max);
  // Of the open interval if `above` is set: `min` itself is refused.
  std::optional<double> number(const std::string& name, double min, double max, bool above = false);
  // A field that must be missing or equal to one of `neutral`, as what it asks for is not built.
  void not_built(const std::string& name, const std::vector<RequestJson>& neutral);

  // Names that nobody read, in order.
  std::vector<std::string> unknown() const;
  std::string path(const std::string& name) const { return prefix_ + name; }

 private:
  const RequestJson& object_;
  std::string prefix_;
  std::set<std::string> known_;
};

}  // namespace meshloom::trainer
