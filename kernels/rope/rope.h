// Rotary position embedding (Su et al., 2021): pair p of the first `dims` features of position s is rotated by
// the angle (s + offset) * theta^(-2p/dims).
#pragma once

#include <optional>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

enum class RopePairing : std::uint8_t { half, interleaved };  // features (p, p + dims/2), or (2p, 2p + 1)

// Rotations of fewer than `low` turns in `length` positions become `factor` times slower, those of more than `high`
// stay as they are, and between the two the frequency is interpolated (Llama 3.1).
struct RopeScaling {
  double factor, low, high, length;
};

struct RopeOptions {
  double theta = 10000.0;
  RopePairing pairing = RopePairing::half;
  std::int64_t dims = 0;    // rotated features, even; 0 = D
  std::int64_t offset = 0;  // position of the first row
  std::optional<RopeScaling> scaling = {};
};

// op "rope": input x (B, S, H, D), a float dtype; attrs theta (number), pairing (text "half" | "interleaved"), dims, offset
// (integers), inverse (flag: rotates backwards, which is the gradient); output like x, may share its storage.
//
// op "rope_scaled": the same with the numbers factor, low, high and length of RopeScaling.
Tensor rope(Tensor x, const RopeOptions& options);

}  // namespace meshloom::kernels
