// The seconds of calls by the efficiencies that published runs reach: what well-tuned stacks (CUDA, TPU) make of a chip, and not
// what Meshloom's own kernels make of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hal/profile.h"
#include "kernels/program/types.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// What the time of a call depends on.
struct CallCost {
  enum class Kind : std::uint8_t { matmul, attention, attention_grad, other } kind = Kind::other;
  bool update = false;  // of the optimizer
  bool fp8 = false;     // a product of 8 bits
  // A product's sizes, each one of `groups`; of attention m = queries, n = keys, k = head size, groups = heads x rows.
  double groups = 1, m = 0, n = 0, k = 0;
  double flops = 0, bytes = 0;
  auto operator<=>(const CallCost&) const = default;
};
std::string_view to_string(CallCost::Kind kind);
CallCost call_cost(const kernels::CallView& call, double flops, double bytes);

// The parts of a chip's rates that calls reach, each of 0 to 1 where it says nothing else.
struct CallConstants {
  double matmul = 1;          // of the peak, by products without a short side
  double matmul_rows = 0;     // a product of m rows reaches m / (m + matmul_rows) of that,
  double matmul_sides = 0;    // and so for n and k
  double fp8 = 1;             // the rate of products of 8 bits, in rates of those of 16
  double attention = 1;       // of the peak, by the forward pass over long sequences with a large head
  double attention_grad = 1;  // the rate of the backward pass, in rates of the forward pass
  double attention_head = 0, attention_rows = 0;  // as matmul_rows, of the head's size and of the queries
  double memory = 1;                              // of the bandwidth
  double launch = 0;                              // seconds
};
// launch + max(flops / (peak e), bytes / (memory_rate e)); `peak` is FLOP/s of 16 bits.
double call_seconds(const CallCost& cost, const CallConstants& constants, double peak, double memory_rate);

// What runs on the chip of this profile reach (efficiencies.json); nullptr where none was published.
const CallConstants* published_constants(const std::string& profile);
// The calls of one update of this rank, at these efficiencies, without copies and moves.
double published_seconds(const Plan& plan, const CallConstants& constants, const hal::Profile& profile);

}  // namespace meshloom::trainer
