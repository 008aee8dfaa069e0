// Counter-based random numbers for cases: the bits depend on (seed, index) only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/core/contract.h"

namespace meshloom::kernels {

// A well-mixed word of both (Steele et al., SplitMix, 2014).
std::uint64_t mix(std::uint64_t seed, std::uint64_t index);

// A stream of choices.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : seed_(seed) {}
  explicit Rng(const CaseSeed& seed) : seed_(seed.seed), tiles_(seed.tiles) {}

  std::int64_t integer(std::int64_t low, std::int64_t high);  // both included
  double uniform(double low, double high);
  bool flip(double probability = 0.5) { return uniform(0, 1) < probability; }
  std::int64_t of(std::initializer_list<std::int64_t> choices);
  // A dimension in [1, max]: more than half of the time where tiles end, or one beside it; else 1, small, or any.
  std::int64_t extent(std::int64_t max);

 private:
  std::int64_t edge(std::int64_t max);

  std::uint64_t seed_, next_ = 0;
  std::span<const std::int64_t> tiles_;
};

// f32 in [low, high].
void fill_uniform(const TensorView& into, std::uint64_t seed, double low, double high);
// i32 in [low, high], both included.
void fill_integers(const TensorView& into, std::uint64_t seed, std::int64_t low, std::int64_t high);

// Input `index` of a case of this contract: its make_input, else uniform in [-1, 1].
HostTensor make_input(const Contract& contract, const CallView& call, int index, std::uint64_t seed);
std::vector<HostTensor> make_inputs(const Contract& contract, const CallView& call, std::uint64_t seed);

}  // namespace meshloom::kernels
