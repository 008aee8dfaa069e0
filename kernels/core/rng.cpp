#include "kernels/core/rng.h"

#include <algorithm>

#include "hal/error.h"

namespace meshloom::kernels {

std::uint64_t mix(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15u * (index + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

namespace {
double unit(std::uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }
}  // namespace

std::int64_t Rng::integer(std::int64_t low, std::int64_t high) {
  const auto span = static_cast<std::uint64_t>(high - low) + 1;
  return low + static_cast<std::int64_t>(mix(seed_, next_++) % span);
}

double Rng::uniform(double low, double high) { return low + (high - low) * unit(mix(seed_, next_++)); }

std::int64_t Rng::of(std::initializer_list<std::int64_t> choices) {
  return choices.begin()[integer(0, static_cast<std::int64_t>(choices.size()) - 1)];
}

std::int64_t Rng::extent(std::int64_t max) {
  const double kind = uniform(0, 1);
  if (kind < 0.1) return 1;
  if (kind < 0.25) return integer(1, std::min<std::int64_t>(max, 9));
  if (kind < 0.85) return edge(max);
  return integer(1, max);
}

std::int64_t Rng::edge(std::int64_t max) {
  static constexpr std::int64_t kTiles[] = {8, 16, 32, 64, 128};
  // The variant's own, but what it is built of (vectors, blocks in registers) is not all in its parameters.
  const std::span<const std::int64_t> tiles = tiles_.empty() || flip(0.25) ? std::span(kTiles) : tiles_;
  const auto pick = [&] {
    return tiles[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(tiles.size()) - 1))];
  };
  std::int64_t widest = 0;  // of those that end before max
  for (const std::int64_t tile : tiles)
    if (tile < max) widest = std::max(widest, tile);
  const std::int64_t tile = std::min(pick(), max);
  std::int64_t at = tile;
  switch (integer(0, 2)) {
    case 0:  // the first end
      break;
    case 1:  // behind the widest tiles
      at += widest > 0 ? widest * integer(1, max / widest) : 0;
      break;
    default:  // the last one
      at = max / tile * tile;
  }
  if (at > max) at = max / tile * tile;
  return std::clamp<std::int64_t>(at + of({-1, -1, 0, 1, 1}), 1, max);
}

void fill_uniform(const TensorView& into, std::uint64_t seed, double low, double high) {
  float* values = into.as<float>();
  for (std::int64_t i = 0; i < into.type.elements(); ++i)
    values[i] = static_cast<float>(low + (high - low) * unit(mix(seed, static_cast<std::uint64_t>(i))));
}

void fill_integers(const TensorView& into, std::uint64_t seed, std::int64_t low, std::int64_t high) {
  auto* values = into.as<std::int32_t>();
  Rng rng(seed);
  for (std::int64_t i = 0; i < into.type.elements(); ++i)
    values[i] = static_cast<std::int32_t>(rng.integer(low, high));
}

HostTensor make_input(const Contract& contract, const CallView& call, int index, std::uint64_t seed) {
  const TensorType& type = call.inputs.at(static_cast<std::size_t>(index));
  if (any_low_precision(call)) {
    const std::vector<TensorType> in = widened(call.inputs), out = widened(call.outputs);
    const HostTensor wide = make_input(contract, {call.op, in, out, call.attrs}, index, seed);
    HostTensor result(type);
    narrow(wide, {result.type, result.data.data()});
    return result;
  }
  HostTensor tensor(type);
  const TensorView view{tensor.type, tensor.data.data()};
  if (contract.make_input)
    contract.make_input(call, index, seed, view);
  else if (tensor.type.dtype == DType::f32)
    fill_uniform(view, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
  else if (hal::size_of(tensor.type.dtype) == 4)
    fill_integers(view, mix(seed, static_cast<std::uint64_t>(index)), -1000, 1000);
  else
    throw hal::Error(contract.name, "needs make_input for inputs of this dtype", to_string(tensor.type));
  return tensor;
}

std::vector<HostTensor> make_inputs(const Contract& contract, const CallView& call, std::uint64_t seed) {
  std::vector<HostTensor> inputs;
  for (int i = 0; i < static_cast<int>(call.inputs.size()); ++i)
    inputs.push_back(make_input(contract, call, i, seed));
  return inputs;
}

}  // namespace meshloom::kernels
