#include "kernels/core/rules.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hal/error.h"
#include "hal/suggest.h"
#include "kernels/elementwise/expression.h"

namespace meshloom::kernels {
namespace {

// Attrs throws with the attribute as the place; contracts promise the op.
template <typename Read>
auto with_place(const std::string& op, Read read) {
  try {
    return read();
  } catch (const hal::Error& error) {
    throw hal::Error(op, error.where() + " " + error.rule(), error.found());
  }
}

}  // namespace

Rules::Rules(std::string_view op, const std::vector<TensorType>& inputs, const Attrs& attrs)
    : op_(op), types_(inputs), attrs_(attrs) {
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (std::int64_t dim : inputs[i].shape)
      if (dim <= 0)
        fail("every dimension of input " + std::to_string(i) + " must be positive", to_string(inputs[i]));
}

void Rules::fail(const std::string& rule, const std::string& found) const {
  throw hal::Error(op_, rule, found);
}

void Rules::inputs(std::vector<std::string> names) {
  names_ = std::move(names);
  if (names_.size() != types_.size())
    fail(names_.empty() ? "takes no inputs" : "takes the inputs " + hal::join(names_),
         std::to_string(types_.size()) + " inputs");
}

void Rules::attributes(std::initializer_list<std::string_view> required,
                       std::initializer_list<std::string_view> optional) const {
  const auto in = [](const std::initializer_list<std::string_view>& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const auto& [name, value] : attrs_.items()) {
    if (in(required, name) || in(optional, name)) continue;
    std::vector<std::string> known(required.begin(), required.end());
    known.insert(known.end(), optional.begin(), optional.end());
    fail("takes the attributes " + (known.empty() ? "none" : hal::join(known)) + hal::suggestion(name, known),
         "attribute '" + name + "'");
  }
  for (std::string_view name : required)
    if (!attrs_.has(name)) fail("attribute '" + std::string(name) + "' must be given", "nothing");
}

std::string Rules::name(int input) const {
  const auto at = static_cast<std::size_t>(input);
  return at < names_.size() ? names_[at] : "input " + std::to_string(input);
}

void Rules::dtype(int input, DType wanted) const {
  if ((*this)[input].dtype != wanted)
    fail(name(input) + " must be " + std::string(hal::to_string(wanted)), to_string((*this)[input]));
}

void Rules::floating(int input) const {
  if (!hal::is_float((*this)[input].dtype))
    fail(name(input) + " must be f32, f16 or bf16", to_string((*this)[input]));
}

void Rules::floats(std::initializer_list<int> inputs) const {
  for (int input : inputs) {
    floating(input);
    dtype(input, (*this)[*inputs.begin()].dtype);
  }
}

DType Rules::result_dtype(DType otherwise) const {
  if (!attrs_.has("dtype")) return otherwise;
  const std::string given = text("dtype");
  for (DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (hal::to_string(dtype) == given) return dtype;
  fail("dtype must be f32, f16 or bf16", "'" + given + "'");
}

void Rules::rank(int input, int low, int high) const {
  const int rank = (*this)[input].rank();
  if (rank < low || rank > high)
    fail(name(input) + " must have " + std::to_string(low) +
             (low == high ? "" : " to " + std::to_string(high)) + " dimensions",
         to_string((*this)[input]));
}

void Rules::shape(int input, const Shape& wanted) const {
  if ((*this)[input].shape != wanted)
    fail(name(input) + " must have the shape " + to_string(wanted), to_string((*this)[input]));
}

bool Rules::flag(std::string_view name) const {
  return with_place(op_, [&] { return attrs_.flag(name); });
}
std::int64_t Rules::integer(std::string_view name) const {
  return with_place(op_, [&] { return attrs_.integer(name); });
}
double Rules::number(std::string_view name) const {
  const double value = with_place(op_, [&] { return attrs_.number(name); });
  if (!std::isfinite(value))
    fail("attribute '" + std::string(name) + "' must be finite", std::to_string(value));
  return value;
}
std::string Rules::text(std::string_view name) const {
  return with_place(op_, [&] { return attrs_.text(name); });
}

std::shared_ptr<const Expression> Rules::expression(std::string_view name, std::size_t inputs) const {
  const std::string given = text(name);
  std::shared_ptr<const Expression> parsed = with_place(op_, [&] { return parsed_expression(given); });
  require(parsed->inputs <= static_cast<std::int32_t>(inputs),
          "needs an input for every x of '" + given + "'", std::to_string(inputs) + " inputs");
  return parsed;
}
std::vector<std::int64_t> Rules::list(std::string_view name) const {
  return with_place(op_, [&] { return attrs_.list(name); });
}

void set_result_dtype(Attrs& attrs, std::optional<DType> dtype, DType otherwise) {
  if (dtype && *dtype != otherwise) attrs.set("dtype", std::string(hal::to_string(*dtype)));
}

Shape leading(const Shape& shape) { return {shape.begin(), shape.end() - 1}; }

std::string letters(int rank) {
  std::string text;
  for (int i = 0; i < rank; ++i) text += static_cast<char>('a' + i);
  return text;
}

Tolerance sum_tolerance(double terms, double ulps) {
  const double eps = hal::epsilon(DType::f32);
  return {ulps * eps, (ulps + 2 * std::sqrt(terms)) * eps, std::sqrt(terms)};
}

Tolerance quantized_weights_tolerance(double terms, DType x) {
  Tolerance result = sum_tolerance(terms, 8);
  if (hal::is_low_precision(x)) result.abs += hal::epsilon(x) / 2;
  return result;
}

}  // namespace meshloom::kernels
