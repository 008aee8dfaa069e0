// Shapes, attributes and calls: the nouns of a program.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hal/dtype.h"

namespace meshloom::kernels {

using hal::DType;
using Shape = std::vector<std::int64_t>;

std::int64_t elements(const Shape& shape);
std::string to_string(const Shape& shape);  // "(4, 128, 576)"

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  std::int64_t elements() const { return kernels::elements(shape); }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(hal::size_of(dtype)); }
  std::int64_t dim(int axis) const;  // negative counts from the back; throws Error out of range
  int rank() const { return static_cast<int>(shape.size()); }
  bool operator==(const TensorType&) const = default;
};
std::string to_string(const TensorType& type);  // "f32(4, 128, 576)"

using Attr = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

// The static arguments of a call, by name. Reading one that is absent or of another type throws Error.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Attr>> items) : items_(items) {}

  bool has(std::string_view name) const { return items_.find(name) != items_.end(); }
  bool flag(std::string_view name) const;  // absent = false
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;  // an integer converts
  const std::string& text(std::string_view name) const;
  const std::vector<std::int64_t>& list(std::string_view name) const;
  void set(const std::string& name, Attr value) { items_[name] = std::move(value); }
  const std::map<std::string, Attr, std::less<>>& items() const { return items_; }
  bool operator==(const Attrs&) const = default;

 private:
  const Attr& at(std::string_view name) const;
  std::map<std::string, Attr, std::less<>> items_;
};
std::string to_string(const Attrs& attrs);  // "{causal=true, scale=0.125}"

// What a kernel sees of a call: everything `fit` may depend on.
struct CallView {
  std::string_view op;
  const std::vector<TensorType>& inputs;
  const std::vector<TensorType>& outputs;
  const Attrs& attrs;
};

}  // namespace meshloom::kernels
