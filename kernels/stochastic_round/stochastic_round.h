// Rounding to bf16 at random, so that the mean is the number (Gupta et al., Deep learning with limited numerical precision, 2015).
#pragma once

#include <cstdint>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

// op "stochastic_round"
// inputs: x (f32, any shape), rng_state (3) i32: seed, step and one that is not read. attrs: key (integer, not negative).
// outputs: y, bf16: x rounded to the neighbour above in magnitude with the probability of its distance to the one below, else to
// that. A bf16 number, an infinity and a NaN stay as they are. Element e draws half e mod 2, the low one first, of word e / 2 mod 4
// of philox(counter = {e / 8 (64 bits), step, seed}, key): y is the upper half of x's bits plus the draw. So what is drawn depends
// on neither device nor order, and is the same after a resume.
Tensor stochastic_round(Tensor x, Tensor rng_state, std::uint64_t key);  // the key's highest bit is left out

// The keys of philox of a call.
struct StochasticRoundKeys {
  std::uint32_t k0 = 0, k1 = 0;
};
StochasticRoundKeys stochastic_round_keys(const CallView& call);

// The bits of x in bf16 for 16 random bits.
constexpr std::uint16_t stochastic_bf16(std::uint32_t bits, std::uint32_t draw) {
  if ((bits & 0x7f800000u) == 0x7f800000u)
    return static_cast<std::uint16_t>(bits >> 16 | ((bits & 0x7fffffu) != 0 ? 0x40u : 0u));
  return static_cast<std::uint16_t>((bits + (draw & 0xffffu)) >> 16);
}

}  // namespace meshloom::kernels
