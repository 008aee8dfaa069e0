#include "trainer/serve/request_fields.h"

#include <fmt/format.h>

#include <cmath>

#include "trainer/data/tokenizer/unicode.h"
#include "trainer/io/json.h"
#include "trainer/serve/api_error.h"

namespace meshloom::trainer {
namespace {
constexpr int kDepth = 64;
}

RequestJson parse_body(std::string_view body) {
  if (const std::size_t bad = first_bad_byte(body); bad != std::string_view::npos)
    throw ApiError(400, fmt::format("the body must be UTF-8 without NUL; found byte 0x{:02x} at {}",
                                    static_cast<unsigned char>(body[bad]), bad));
  RequestJson json;
  try {
    json = parse_ordered_json(body, "request", "the body", kDepth);
  } catch (const Error& error) {
    throw ApiError(400, error.rule() + (error.found().empty() ? "" : "; found " + error.found()));
  }
  if (!json.is_object()) throw ApiError(400, "the body must be a JSON object; found " + shown_value(json));
  return json;
}

std::string shown_value(const RequestJson& value) {
  if (value.is_structured() && value.size() > 100)
    return fmt::format("{} of {} values", value.is_array() ? "a list" : "an object", value.size());
  return shown(value.dump(-1, ' ', true, RequestJson::error_handler_t::replace));
}

RequestFields::RequestFields(const RequestJson& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

const RequestJson* RequestFields::find(const std::string& name) {
  known_.insert(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<bool> RequestFields::boolean(const std::string& name) {
  const RequestJson* value = find(name);
  if (!value) return {};
  if (!value->is_boolean()) refuse_field(path(name), "must be true or false", shown_value(*value));
  return value->get<bool>();
}

std::optional<std::string> RequestFields::text(const std::string& name) {
  const RequestJson* value = find(name);
  if (!value) return {};
  if (!value->is_string()) refuse_field(path(name), "must be text", shown_value(*value));
  return value->get<std::string>();
}

std::optional<std::int64_t> RequestFields::integer(const std::string& name, std::int64_t min,
                                                   std::int64_t max) {
  const RequestJson* value = find(name);
  if (!value) return {};
  const bool fits =
      value->is_number_integer() &&
      !(value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX));
  const std::int64_t number = fits ? value->get<std::int64_t>() : 0;
  if (!fits || number < min || number > max)
    refuse_field(path(name),
                 max == INT64_MAX ? fmt::format("must be an integer from {} to 2^63 - 1", min)
                                  : fmt::format("must be an integer from {} to {}", min, max),
                 shown_value(*value));
  return number;
}

std::optional<double> RequestFields::number(const std::string& name, double min, double max, bool above) {
  const RequestJson* value = find(name);
  if (!value) return {};
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= min && number <= max) || (above && number == min))
    refuse_field(path(name), fmt::format("must be a number in {}{}, {}]", above ? "(" : "[", min, max),
                 shown_value(*value));
  return number;
}

void RequestFields::not_built(const std::string& name, const std::vector<RequestJson>& neutral) {
  const RequestJson* value = find(name);
  if (!value) return;
  for (const RequestJson& each : neutral)
    if (*value == each) return;
  refuse_field(path(name), "is not built here, so it must be left out", shown_value(*value));
}

std::vector<std::string> RequestFields::unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items())
    if (!known_.contains(name)) names.push_back(prefix_ + name);
  return names;
}

}  // namespace meshloom::trainer
