#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/adamw_8bit/parts.h"

namespace meshloom::kernels {
namespace {

using namespace adamw_8bit_parts;

constexpr double kSmallestScale = 1e-30;
constexpr int kSign = 128;

const std::array<double, 256>& magnitudes() {
  static const std::array<double, 256> all = [] {
    std::array<double, 256> table{};
    for (int j = 0; j < 8; ++j)
      for (int k = 0; k < 1 << j; ++k)
        table[static_cast<std::size_t>((1 << j) + k)] =
            std::pow(10.0, j - 7) * (0.1 + 0.9 * (k + 1) / (1 << j));
    return table;
  }();
  return all;
}

double scale_of(const std::byte* block) {
  float scale;
  std::memcpy(&scale, block + kMomentBlock, sizeof scale);
  return scale;
}
int code_of(const std::byte* block, std::int64_t i) { return std::to_integer<int>(block[i]); }
// In units of the scale.
double first_of(int code) { return (code & kSign ? -10 : 10) * moment_magnitude(code & (kSign - 1)); }

// One step in double; moments by element, and the size of the terms that each is the sum of.
struct Step {
  std::vector<double> p, m, root, m_terms;
};

Step step_of(const CallView& call, std::span<const ConstTensorView> inputs) {
  const float* control = inputs[kControl].as<float>();
  const double b1 = call.attrs.number("beta1"), b2 = call.attrs.number("beta2");
  const double eps = call.attrs.number("eps"), decay = call.attrs.number("weight_decay");
  const double rate = control[kRate], scale = control[kScale], t = control[kStep];
  const double correct1 = 1 - std::pow(b1, t), correct2 = 1 - std::pow(b2, t);
  Step step;
  for (std::int64_t i = 0; i < call.inputs[kP].elements(); ++i) {
    const std::byte* m_block = inputs[kM].data + i / kMomentBlock * kMomentBlockBytes;
    const std::byte* v_block = inputs[kV].data + i / kMomentBlock * kMomentBlockBytes;
    const std::int64_t at = i % kMomentBlock;
    const double p = inputs[kP].as<float>()[i], g = scale * inputs[kG].as<float>()[i];
    const double m0 = first_of(code_of(m_block, at)) * scale_of(m_block);
    const double root0 = moment_magnitude(code_of(v_block, at)) * scale_of(v_block);
    const double m = b1 * m0 + (1 - b1) * g, root = std::sqrt(b2 * root0 * root0 + (1 - b2) * g * g);
    step.p.push_back(p - rate * (m / correct1 / (root / std::sqrt(correct2) + eps) + decay * p));
    step.m.push_back(m);
    step.root.push_back(root);
    step.m_terms.push_back(std::abs(b1 * m0) + std::abs((1 - b1) * g));
  }
  return step;
}

int code_for(double value, double scale, bool is_signed) {
  const int code = moment_code(std::abs(value) / (is_signed ? 10 * scale : scale));
  if (is_signed) return code > 0 && value < 0 ? code | kSign : code;
  return value > 0 ? std::max(code, 1) : code;
}

// Codes `values`, signed ones as m.
void quantize(const std::vector<double>& values, bool is_signed, std::byte* into) {
  const auto count = static_cast<std::int64_t>(values.size());
  for (std::int64_t begin = 0; begin < count; begin += kMomentBlock, into += kMomentBlockBytes) {
    const std::int64_t size = std::min(kMomentBlock, count - begin);
    double scale = 0;
    for (std::int64_t i = 0; i < size; ++i)
      scale = std::max(scale, std::abs(values[static_cast<std::size_t>(begin + i)]));
    std::memset(into, 0, static_cast<std::size_t>(kMomentBlockBytes));
    const auto stored = static_cast<float>(scale);
    std::memcpy(into + kMomentBlock, &stored, sizeof stored);
    if (scale < kSmallestScale) continue;
    for (std::int64_t i = 0; i < size; ++i) {
      into[i] =
          static_cast<std::byte>(code_for(values[static_cast<std::size_t>(begin + i)], scale, is_signed));
    }
  }
}

Comparison wrong(std::int64_t element, const std::string& what) {
  return {false, 1, std::numeric_limits<double>::infinity(), fmt::format("element {}: {}", element, what)};
}

}  // namespace

double moment_magnitude(int code) { return magnitudes()[static_cast<std::size_t>(code)]; }

int moment_code(double y) {
  const std::array<double, 256>& all = magnitudes();
  const auto above = std::lower_bound(all.begin(), all.end(), y);
  if (above == all.end()) return 255;
  const int code = static_cast<int>(above - all.begin());
  return code > 0 && y - all[static_cast<std::size_t>(code - 1)] < *above - y ? code - 1 : code;
}

namespace adamw_8bit_parts {

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  if (inputs[kControl].as<float>()[kApply] == 0) {
    for (const auto& [input, output] : {std::pair{kP, 0u}, {kM, 1u}, {kV, 2u}})
      std::memmove(outputs[output].data, inputs[input].data,
                   static_cast<std::size_t>(call.inputs[static_cast<std::size_t>(input)].bytes()));
    reference_copy(call, outputs);
    return;
  }
  const Step step = step_of(call, inputs);
  for (std::size_t i = 0; i < step.p.size(); ++i) outputs[0].as<float>()[i] = static_cast<float>(step.p[i]);
  quantize(step.m, true, outputs[1].data);
  quantize(step.root, false, outputs[2].data);
  reference_copy(call, outputs);
}

// A code is right when no other is nearer to the exact moment by more than f32 arithmetic loses.
Comparison judge(const CallView& call, std::span<const ConstTensorView> inputs,
                 std::span<const ConstTensorView> want, std::span<const ConstTensorView> got, int output) {
  const auto o = static_cast<std::size_t>(output);
  if (output == kCopy) return judge_copy(got);
  if (output == 0) return compare(want[o], got[o], tolerance(call));
  if (std::memcmp(want[o].data, got[o].data, static_cast<std::size_t>(want[o].type.bytes())) == 0) return {};
  if (inputs[kControl].as<float>()[kApply] == 0) return compare(want[o], got[o], {});
  constexpr double eps = hal::epsilon(DType::f32);
  const bool is_signed = output == 1;
  const Step step = step_of(call, inputs);
  const std::vector<double>& exact = is_signed ? step.m : step.root;
  const auto count = static_cast<std::int64_t>(exact.size());
  Comparison result;
  for (std::int64_t begin = 0; begin < count; begin += kMomentBlock) {
    const std::byte* block = got[o].data + begin / kMomentBlock * kMomentBlockBytes;
    const std::int64_t size = std::min(kMomentBlock, count - begin);
    double scale = 0, terms = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<std::size_t>(begin + i);
      scale = std::max(scale, std::abs(exact[at]));
      terms = std::max(terms, is_signed ? step.m_terms[at] : exact[at]);
    }
    const double lost = 16 * eps * terms;
    if (!(std::abs(scale_of(block) - scale) <= lost))
      return wrong(begin, fmt::format("the scale of its block is {}, want {}", scale_of(block), scale));
    for (std::int64_t i = 0; i < kMomentBlock; ++i) {
      const int code = code_of(block, i);
      if (i >= size || scale < kSmallestScale) {
        if (code != 0) return wrong(begin + i, fmt::format("code {}, want 0", code));
        continue;
      }
      const double value = exact[static_cast<std::size_t>(begin + i)];
      if (!is_signed && value > 0 && code == 0) return wrong(begin + i, "code 0 of a positive second moment");
      if (is_signed && code == kSign) return wrong(begin + i, "code 128, which nothing has");
      const auto error_of = [&](int c) {
        return std::abs((is_signed ? first_of(c) : moment_magnitude(c)) * scale - value);
      };
      const double nearest = error_of(code_for(value, scale, is_signed));
      // Between neighbouring codes, the line that kernels compute has numbers of up to 255.
      const double slack = lost + 1e-4 * nearest, error = error_of(code);
      result.worst = std::max(result.worst, error / (nearest + slack));
      if (error > nearest + slack)
        return wrong(begin + i,
                     fmt::format("code {} is {:.6g} away from {:.9g} of {:.9g}, another only {:.6g}", code,
                                 error, value, scale, nearest));
    }
  }
  return result;
}

}  // namespace adamw_8bit_parts
}  // namespace meshloom::kernels
