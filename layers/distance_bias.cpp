#include "layers/distance_bias.h"

#include <bit>
#include <cmath>

namespace meshloom::layers {

std::vector<double> Alibi::slopes(std::int64_t heads) const {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> all;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double step = h < power ? static_cast<double>(h + 1) : static_cast<double>(h - power) + 0.5;
    all.push_back(std::exp2(-8 * step / static_cast<double>(power)));
  }
  return all;
}

void add_distance_bias_classes(ClassTable& classes) { classes.add<Alibi>(); }

}  // namespace meshloom::layers
