// What the tests of attention on the matrix units of GPUs share, forward and backward.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/kernels/matrix_units/on_tensor_cores.h"

namespace meshloom::tests {

// Sizes of a call, and what it has beyond a causal mask.
struct AttentionCall {
  std::int64_t b = 1, s = 1, t = 1, h = 1, kv = 1, d = 64;
  std::int64_t dv = 0;  // 0 = d
  bool causal = true;
  hal::DType dtype = hal::DType::bf16;
  double soft_cap = 0;  // 0 = none
};

class AttentionOnTensorCores : public OnTensorCores {
 protected:
  using OnTensorCores::OnTensorCores;

  kernels::Case case_of(const AttentionCall& call) const {
    const std::int64_t dv = call.dv > 0 ? call.dv : call.d;
    kernels::Case test{std::to_string(call.s) + " of " + std::to_string(call.t) + ", heads of " +
                           std::to_string(call.d) + " and " + std::to_string(dv),
                       {{call.dtype, {call.b, call.s, call.h, call.d}},
                        {call.dtype, {call.b, call.t, call.kv, call.d}},
                        {call.dtype, {call.b, call.t, call.kv, dv}}},
                       {{"scale", 0.2}},
                       false};
    if (is_grad()) {
      const kernels::TensorType o{call.dtype, {call.b, call.s, call.h, dv}};
      test.inputs.insert(test.inputs.end(), {o, {hal::DType::f32, {call.b, call.h, call.s}}, o});
    }
    if (call.causal) test.attrs.set("causal", true);
    if (call.soft_cap > 0) test.attrs.set("soft_cap", call.soft_cap);
    return test;
  }
  // The case with heads of so many features.
  kernels::Case with_heads(kernels::Case test, std::int64_t features) const {
    for (const std::size_t i : {0, 1, 2, 3, 5})  // q, k and v; o and its gradient
      if (i < 3 || is_grad()) test.inputs[i].shape.back() = features;
    test.name += ", heads of " + std::to_string(features);
    return test;
  }
  kernels::Case case_named(const std::string& name) const {
    for (const kernels::Case& test : contract().cases())
      if (test.name == name) return test;
    throw std::logic_error("no case is called '" + name + "'");
  }
  // Each call in one of `among` tiles or fewer, the first in that of this turn, the next in those behind it; in a full run in all tiles, of
  // which there must be so many. Returns those that ran.
  std::vector<kernels::Fit> expect_tiles_right(hal::Device& device,
                                               std::initializer_list<AttentionCall> calls,
                                               const testing::Matcher<std::vector<kernels::Fit>>& count,
                                               std::size_t turn = 0, std::size_t among = SIZE_MAX) const {
    std::vector<kernels::Fit> ran;
    for (const AttentionCall& each : calls) {
      const CaseCall call(catalog_, op_, case_of(each));
      const std::vector<kernels::Fit> all = variant_->alternatives(call.view(), device.info());
      EXPECT_THAT(all, count) << each.d;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!has_turn(i, std::min(all.size(), among), turn)) continue;
        expect_right(device, all[i], call);
        ran.push_back(all[i]);
      }
      ++turn;
    }
    return ran;
  }

 private:
  bool is_grad() const { return op_ == "flash_attention_grad"; }
};

}  // namespace meshloom::tests
