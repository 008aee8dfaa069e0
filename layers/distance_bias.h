// What the distance between two positions takes away from their attention score, in place of position
// embeddings.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/config/config.h"

namespace meshloom::layers {

// A config and a pure function at once.
struct DistanceBias : Config {
  // Per head: the score of positions i and j loses slope |i - j|.
  virtual std::vector<double> slopes(std::int64_t heads) const = 0;
};

// A geometric sequence of slopes that starts at and falls by 2^(-8 / heads); where heads are not a power of
// two, that of the power below, then every other one of the power above (Press et al., 2022).
struct Alibi : ConfigOf<Alibi, DistanceBias> {
  static constexpr std::string_view kName = "Alibi";
  void fields(FieldVisitor&) override {}
  std::vector<double> slopes(std::int64_t heads) const override;
};

}  // namespace meshloom::layers
