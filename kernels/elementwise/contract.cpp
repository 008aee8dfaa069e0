#include <algorithm>
#include <limits>
#include <utility>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/expression.h"
#include "kernels/elementwise/parts.h"

namespace meshloom::kernels {
namespace elementwise_parts {

bool broadcasts(const Shape& input, const Shape& output) {
  if (elements(input) == 1) return true;
  return input.size() <= output.size() && std::equal(input.rbegin(), input.rend(), output.rbegin());
}

}  // namespace elementwise_parts

namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("elementwise", inputs, attrs);
  rules.attributes({"shape", "expr"}, {"dtype"});
  const Shape shape = rules.list("shape");
  for (std::int64_t dim : shape)
    rules.require(dim > 0, "every dimension of the shape must be positive", to_string(shape));
  const std::size_t roots = rules.expression("expr", inputs.size())->roots.size();
  rules.require(inputs.size() + roots <= kMaxElementwiseOperands,
                "takes at most " + std::to_string(kMaxElementwiseOperands) + " inputs and outputs together",
                std::to_string(inputs.size()) + " inputs and " + std::to_string(roots) + " outputs");
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    rules.floating(i);
    rules.require(elementwise_parts::broadcasts(rules[i].shape, shape),
                  "input " + std::to_string(i) + " must have the shape " + to_string(shape) +
                      ", a trailing part of it, or one element",
                  to_string(rules[i]));
  }
  return std::vector<TensorType>(roots, TensorType{rules.result_dtype(), shape});
}

double operations_of(const CallView& call) {
  return static_cast<double>(operations(*parsed_expression(call.attrs.text("expr"))));
}

double flops(const CallView& call) {
  return operations_of(call) * static_cast<double>(call.outputs[0].elements());
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const Expression expression = parse_expression(call.attrs.text("expr"));
  std::vector<double> x(inputs.size()), y(outputs.size());
  for (std::int64_t i = 0; i < call.outputs[0].elements(); ++i) {
    for (std::size_t k = 0; k < inputs.size(); ++k)
      x[k] = inputs[k].as<float>()[i % call.inputs[k].elements()];
    evaluate(expression, x.data(), y.data());
    for (std::size_t k = 0; k < outputs.size(); ++k) outputs[k].as<float>()[i] = static_cast<float>(y[k]);
  }
}

std::string partition(const CallView& call) {
  const Shape& shape = call.outputs[0].shape;
  const std::string whole = letters(static_cast<int>(shape.size()));
  std::string text;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Shape& input = call.inputs[i].shape;
    const bool trailing =
        input.size() <= shape.size() && std::equal(input.rbegin(), input.rend(), shape.rbegin());
    text += (i ? "," : "") +
            (trailing ? whole.substr(whole.size() - input.size()) : std::string(input.size(), '.'));
  }
  text += "->";
  for (std::size_t i = 0; i < call.outputs.size(); ++i) text += (i ? "," : "") + whole;
  return text;
}

LowPrecision low_precision(const CallView& call) {
  LowPrecision how{.attribute = true};
  for (int i = 0; i < static_cast<int>(call.inputs.size()); ++i) how.any.push_back(i);
  return how;
}

// A few ulps per operation. What cancels is of the size of the inputs.
Tolerance tolerance(const CallView& call) {
  const double ulps = (4 + 8 * operations_of(call)) * hal::epsilon(DType::f32);
  return {ulps, ulps, 0.25};
}

std::vector<std::pair<int, int>> in_place(const CallView& call) {
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < static_cast<int>(call.inputs.size()); ++i)
    for (int o = 0; o < static_cast<int>(call.outputs.size()); ++o)
      if (call.inputs[static_cast<std::size_t>(i)] == call.outputs[static_cast<std::size_t>(o)])
        pairs.emplace_back(i, o);
  return pairs;
}

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
  // What is_finite is for.
  if (call.attrs.text("expr").find("is_finite") == std::string::npos) return;
  constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  for (std::int64_t i = index; i < into.type.elements(); i += 5) into.as<float>()[i] = kOdd[i % 3];
}

}  // namespace

void add_elementwise(Catalog& catalog) {
  catalog.add(Contract{.name = "elementwise",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .low_precision = low_precision,
                       .gradient = elementwise_parts::gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = elementwise_parts::cases,
                       .in_place = in_place,
                       .make_input = make_input,
                       .random_case = elementwise_parts::random_case});
}

}  // namespace meshloom::kernels
