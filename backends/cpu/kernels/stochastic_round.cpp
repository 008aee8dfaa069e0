// Rounding to bf16 with random bits.
#include "kernels/stochastic_round/stochastic_round.h"

#include <algorithm>
#include <bit>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"
#include "kernels/core/philox.h"

namespace meshloom::backends::cpu {
namespace {

constexpr std::int64_t kBlock = 4096;  // elements per work item, a multiple of 8

// Bindings x, rng_state, y; an item is a block of elements.
void run_stochastic_round(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer();
  const std::uint32_t k0 = constants.word(), k1 = constants.word();
  const auto* x = reinterpret_cast<const std::uint32_t*>(args.at(0));
  const auto* state = reinterpret_cast<const std::uint32_t*>(args.at(1));
  auto* y = reinterpret_cast<std::uint16_t*>(args.at(2));
  const std::int64_t last = std::min(n, end * kBlock);
  for (std::int64_t e = begin * kBlock; e < last; e += 8) {
    const auto block = static_cast<std::uint64_t>(e) / 8;
    const kernels::PhiloxWords words = kernels::philox(
        {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), state[1], state[0]}},
        k0, k1);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(8, last - e); ++i)
      y[e + i] = kernels::stochastic_bf16(x[e + i], words.v[i / 2] >> (i % 2 * 16));
  }
}

void encode(const kernels::EncodeArgs& args) {
  const std::int64_t n = args.call.inputs[0].elements();
  const kernels::StochasticRoundKeys keys = kernels::stochastic_round_keys(args.call);
  record(args, "stochastic_round", hal::ceil_div(n, kBlock),
         {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
         Constants().integer(n).word(keys.k0).word(keys.k1));
}

}  // namespace

Ops stochastic_round_ops() {
  kernels::Variant variant =
      low_precision_variant("eight elements per draw of four words", fit_floats, encode);
  return {{{"stochastic_round", run_stochastic_round}}, {{"stochastic_round", {variant}}}};
}

}  // namespace meshloom::backends::cpu
