#include "tests/kernels/finite_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "hal/error.h"
#include "kernels/core/rng.h"
#include "kernels/elementwise/expression.h"
#include "kernels/flash_attention/flash_attention.h"
#include "kernels/nf4_matmul/nf4_matmul.h"
#include "kernels/program/verify.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/interpret.h"

namespace meshloom::tests {
namespace {

using kernels::DType;
using kernels::HostTensor;
using kernels::Tensor;
using kernels::ValueId;
using Numbers = std::vector<double>;

// The forward call and its gradient in one program.
struct Backward {
  kernels::Program program;
  std::vector<ValueId> inputs, outputs;
  std::vector<ValueId> cotangents;  // per output, or kNoValue
  std::vector<ValueId> gradients;   // per input, or kNoValue
};

// nullopt where the op lets no cotangent through these outputs.
std::optional<Backward> write_backward(const kernels::Catalog& catalog, const std::string& op,
                                       const kernels::Case& test, const std::vector<bool>& flows,
                                       std::string& why_not) {
  Backward result;
  result.program.name = op + " " + test.name + " gradient";
  kernels::Builder builder(catalog, result.program);
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < test.inputs.size(); ++i)
    inputs.push_back(builder.input("in" + std::to_string(i), test.inputs[i], kernels::Role::input));
  const std::vector<Tensor> outputs = builder.call(op, inputs, test.attrs);
  std::vector<Tensor> cotangents;
  for (std::size_t o = 0; o < outputs.size(); ++o)
    cotangents.push_back(o < flows.size() && flows[o]
                             ? builder.input("d" + std::to_string(o), outputs[o].type(), kernels::Role::input)
                             : Tensor{});
  // The gradient appends calls to the program it reads this one from.
  const kernels::Call call = result.program.calls.front();
  std::vector<Tensor> gradients;
  try {
    gradients = catalog.contract(op).gradient({builder, call, inputs, outputs, cotangents});
  } catch (const hal::Error& error) {
    why_not = error.what();
    return std::nullopt;
  }
  for (Tensor tensor : inputs) result.inputs.push_back(tensor.id);
  for (Tensor tensor : outputs) result.outputs.push_back(tensor.id);
  for (Tensor tensor : cotangents) result.cotangents.push_back(tensor.id);
  for (Tensor tensor : gradients) {
    result.gradients.push_back(tensor.id);
    if (tensor) builder.output(tensor);
  }
  kernels::verify(result.program, catalog, "gradient of " + op);
  return result;
}

class Checker {
 public:
  Checker(const kernels::Catalog& catalog, const std::string& op, const kernels::Case& test,
          std::uint64_t seed)
      : catalog_(catalog),
        contract_(catalog.contract(op)),
        test_(test),
        call_(catalog, op, test),
        seed_(seed) {
    if (op == "elementwise") expression_ = kernels::parse_expression(test.attrs.text("expr"));
    step_ = expression_ ? 0x1p-17 : 0x1p-5;
  }

  GradientCheck run() {
    std::vector<bool> flows;
    std::string why_not;
    const std::size_t outputs = call_.view().outputs.size();
    for (std::size_t o = 0; o < outputs; ++o) {
      std::vector<bool> only(outputs, false);
      only[o] = true;
      flows.push_back(call_.view().outputs[o].dtype == DType::f32 &&
                      write_backward(catalog_, contract_.name, test_, only, why_not).has_value());
    }
    if (std::find(flows.begin(), flows.end(), true) == flows.end()) {
      fail("no output lets a cotangent through: " + why_not);
      return result_;
    }
    backward_ = *write_backward(catalog_, contract_.name, test_, flows, why_not);
    if (backward_.gradients.size() != backward_.inputs.size()) {
      fail(fmt::format("{} gradients for {} inputs", backward_.gradients.size(), backward_.inputs.size()));
      return result_;
    }
    fill();
    values_ = interpret(backward_.program, catalog_, std::move(values_));
    for (std::size_t i = 0; i < backward_.inputs.size(); ++i) check_input(i);
    return result_;
  }

 private:
  void fail(const std::string& text) {
    result_.failures.push_back(contract_.name + " " + test_.name + ": " + text);
  }

  void fill() {
    std::vector<HostTensor> inputs = kernels::make_inputs(contract_, call_.view(), seed_);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].type.dtype == DType::f32) {
        float* x = inputs[i].as<float>();
        // Each input of an elementwise call has a grid of its own: no ties, no zeros.
        const double shift = expression_ ? (static_cast<double>(i) + 1) / 16 : 0;
        for (std::int64_t k = 0; k < inputs[i].type.elements(); ++k)
          x[k] =
              static_cast<float>((std::nearbyint((std::isfinite(x[k]) ? x[k] : 0.25) * 1024) + shift) / 1024);
      }
      values_.insert_or_assign(backward_.inputs[i], std::move(inputs[i]));
    }
    for (std::size_t o = 0; o < backward_.outputs.size(); ++o) {
      if (backward_.cotangents[o] == kernels::kNoValue) continue;
      HostTensor cotangent(backward_.program.value(backward_.cotangents[o]).type);
      kernels::fill_uniform({cotangent.type, cotangent.data.data()}, kernels::mix(seed_, 500 + o), -1, 1);
      values_.insert_or_assign(backward_.cotangents[o], std::move(cotangent));
    }
  }

  // c y, element by element over all outputs, with input `which` moved by `factor` times `direction`.
  Numbers weighted(std::size_t which, const std::vector<std::pair<std::int64_t, double>>& direction,
                   double factor) const {
    Numbers result;
    if (expression_) {
      std::vector<Numbers> inputs;
      for (ValueId id : backward_.inputs) {
        const HostTensor& tensor = values_.at(id);
        inputs.emplace_back(tensor.as<float>(), tensor.as<float>() + tensor.type.elements());
      }
      for (const auto& [index, sign] : direction)
        inputs[which][static_cast<std::size_t>(index)] += factor * sign;
      const auto count = static_cast<std::size_t>(call_.view().outputs[0].elements());
      result.resize(count * backward_.outputs.size());
      Numbers x(inputs.size()), y(backward_.outputs.size());
      for (std::size_t k = 0; k < count; ++k) {
        for (std::size_t i = 0; i < inputs.size(); ++i) x[i] = inputs[i][k % inputs[i].size()];
        kernels::evaluate(*expression_, x.data(), y.data());
        for (std::size_t o = 0; o < y.size(); ++o)
          if (backward_.cotangents[o] != kernels::kNoValue)
            result[o * count + k] = y[o] * values_.at(backward_.cotangents[o]).as<float>()[k];
      }
      return result;
    }
    std::vector<HostTensor> inputs;
    for (ValueId id : backward_.inputs) inputs.push_back(values_.at(id));
    for (const auto& [index, sign] : direction)
      inputs[which].as<float>()[index] += static_cast<float>(factor * sign);
    const std::vector<HostTensor> outputs = reference_outputs(contract_, call_.view(), inputs);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if (backward_.cotangents[o] == kernels::kNoValue) continue;
      const HostTensor& c = values_.at(backward_.cotangents[o]);
      for (std::int64_t k = 0; k < outputs[o].type.elements(); ++k)
        result.push_back(static_cast<double>(outputs[o].as<float>()[k]) * c.as<float>()[k]);
    }
    return result;
  }

  // Inputs whose contract says that they have no gradient though the result depends on them.
  bool is_constant(std::size_t i) const {
    if (contract_.name == "nf4_matmul")  // the scales
      return i == 2 || static_cast<int>(i) == kernels::nf4_matmul_dims(call_.view()).steps;
    if (contract_.name == "int8_matmul") return i == 1 || i == 3;  // likewise
    return contract_.name == "flash_attention" &&
           static_cast<int>(i) == kernels::attention_dims(call_.view()).slopes;
  }

  void check_input(std::size_t i) {
    const HostTensor& x = values_.at(backward_.inputs[i]);
    const ValueId gradient = backward_.gradients[i];
    if (x.type.dtype != DType::f32) {
      if (gradient != kernels::kNoValue) fail(fmt::format("input {} is of integers and has a gradient", i));
      return;
    }
    if (is_constant(i)) {
      if (gradient != kernels::kNoValue) fail(fmt::format("input {} is a constant and has a gradient", i));
      return;
    }
    const std::int64_t count = x.type.elements();
    Numbers g(static_cast<std::size_t>(count), 0.0);
    if (gradient != kernels::kNoValue) {
      const HostTensor& tensor = values_.at(gradient);
      if (tensor.type != x.type)
        return fail(fmt::format("the gradient of input {} is {}, the input {}", i, to_string(tensor.type),
                                to_string(x.type)));
      g.assign(tensor.as<float>(), tensor.as<float>() + count);
    }
    kernels::Rng rng(kernels::mix(seed_, 900 + i));
    for (std::int64_t k = 0; k < std::min<std::int64_t>(count, 24); ++k) {
      const std::int64_t at = count <= 24 ? k : rng.integer(0, count - 1);
      compare(i, fmt::format("element {}", at), {{at, 1.0}}, step_, g);
    }
    for (int round = 0; round < 2; ++round) {
      std::vector<std::pair<std::int64_t, double>> signs;
      for (std::int64_t k = 0; k < count; ++k) signs.emplace_back(k, rng.flip() ? 1.0 : -1.0);
      compare(i, fmt::format("direction {}", round), signs, step_ / 8, g);
    }
  }

  void compare(std::size_t input, const std::string& where,
               const std::vector<std::pair<std::int64_t, double>>& direction, double h, const Numbers& g) {
    const Numbers p1 = weighted(input, direction, h), m1 = weighted(input, direction, -h),
                  p2 = weighted(input, direction, 2 * h), m2 = weighted(input, direction, -2 * h);
    // An element that should have changed may be too coarse to: the largest counts always.
    double near = 0, far = 0, changed = 0, largest = 0, parts = 0;
    for (std::size_t k = 0; k < p1.size(); ++k) {
      largest = std::max(largest, p1[k] * p1[k]);
      if (p1[k] == m1[k] && p2[k] == m2[k]) continue;
      near += p1[k] - m1[k];
      far += p2[k] - m2[k];
      parts += (p1[k] - m1[k]) * (p1[k] - m1[k]) / (4 * h * h);
      changed += std::max({p1[k] * p1[k], m1[k] * m1[k], p2[k] * p2[k], m2[k] * m2[k]});
    }
    const double d2 = near / (2 * h), d4 = (8 * near - far) / (12 * h);
    double slope = 0, size = 0;
    for (const auto& [index, sign] : direction) {
      slope += sign * g[static_cast<std::size_t>(index)];
      size += g[static_cast<std::size_t>(index)] * g[static_cast<std::size_t>(index)];
    }
    // Rounding is uniform over an ulp: its standard deviation is ulp / sqrt(12), an ulp at most eps of the
    // value.
    const double ulp = expression_ ? 0x1p-52 : hal::epsilon(DType::f32);
    const double rounding = 6 * 1.5 / h * ulp / std::sqrt(12.0) * std::sqrt(changed + largest);
    // Parts of opposite sign, each rounded to f32, may leave a small sum.
    const double own =
        1e-5 * std::sqrt(size) + 6 * hal::epsilon(DType::f32) / std::sqrt(12.0) * std::sqrt(parts);
    const double allowed = rounding + 0.1 * std::abs(d4 - d2) + own + 1e-9;
    const double error = std::abs(d4 - slope);
    ++result_.coordinates;
    result_.worst = std::max(result_.worst, error / allowed);
    if (!(error <= allowed))
      fail(fmt::format("input {} {}: the gradient is {:.9g}, differences give {:.9g}, allowed error {:.3g}",
                       input, where, slope, d4, allowed));
  }

  const kernels::Catalog& catalog_;
  const kernels::Contract& contract_;
  const kernels::Case& test_;
  CaseCall call_;
  std::uint64_t seed_;
  std::optional<kernels::Expression> expression_;
  double step_ = 0;
  Backward backward_;
  Values values_;
  GradientCheck result_;
};

}  // namespace

GradientCheck check_gradient(const kernels::Catalog& catalog, const std::string& op,
                             const kernels::Case& test, std::uint64_t seed) {
  return Checker(catalog, op, test, seed).run();
}

}  // namespace meshloom::tests
