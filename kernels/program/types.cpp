#include "kernels/program/types.h"

#include <fmt/format.h>

#include "hal/error.h"

namespace meshloom::kernels {
namespace {

template <typename T>
const T& typed(const Attr& attr, std::string_view name, std::string_view wanted) {
  if (const T* value = std::get_if<T>(&attr)) return *value;
  throw hal::Error("attribute '" + std::string(name) + "'", "must be " + std::string(wanted), "another type");
}

std::string join(const std::vector<std::int64_t>& list) {
  std::string text;
  for (std::int64_t item : list) text += (text.empty() ? "" : ", ") + std::to_string(item);
  return text;
}

struct AttrText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const {
    std::string text = fmt::format("{}", value);
    return text.find_first_of(".ein") == std::string::npos ? text + ".0" : text;
  }
  std::string operator()(const std::string& value) const { return '"' + value + '"'; }
  std::string operator()(const std::vector<std::int64_t>& value) const { return "[" + join(value) + "]"; }
};

}  // namespace

std::string to_string(const Shape& shape) { return "(" + join(shape) + ")"; }

std::int64_t TensorType::dim(int axis) const {
  const int at = axis < 0 ? rank() + axis : axis;
  if (at < 0 || at >= rank())
    throw hal::Error("tensor " + to_string(*this), "dimension must be within the rank", std::to_string(axis));
  return shape[static_cast<std::size_t>(at)];
}

std::string to_string(const TensorType& type) {
  return std::string(hal::to_string(type.dtype)) + to_string(type.shape);
}

const Attr& Attrs::at(std::string_view name) const {
  const auto it = items_.find(name);
  if (it == items_.end())
    throw hal::Error("attribute '" + std::string(name) + "'", "must be given", "nothing");
  return it->second;
}

bool Attrs::flag(std::string_view name) const { return has(name) && typed<bool>(at(name), name, "a flag"); }

std::int64_t Attrs::integer(std::string_view name) const {
  return typed<std::int64_t>(at(name), name, "an integer");
}

double Attrs::number(std::string_view name) const {
  const Attr& attr = at(name);
  if (const auto* integer = std::get_if<std::int64_t>(&attr)) return static_cast<double>(*integer);
  return typed<double>(attr, name, "a number");
}

const std::string& Attrs::text(std::string_view name) const {
  return typed<std::string>(at(name), name, "a text");
}

const std::vector<std::int64_t>& Attrs::list(std::string_view name) const {
  return typed<std::vector<std::int64_t>>(at(name), name, "a list of integers");
}

std::string to_string(const Attrs& attrs) {
  std::string text;
  for (const auto& [name, value] : attrs.items())
    text += (text.empty() ? "" : ", ") + name + "=" + std::visit(AttrText{}, value);
  return "{" + text + "}";
}

}  // namespace meshloom::kernels
