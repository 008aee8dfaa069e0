// Rotary position embedding (Su et al., 2021): pair p of the first `dims` features of position s is rotated by
// the angle (s + offset) * theta^(-2p/dims).
#pragma once

#include "kernels/program/builder.h"

namespace meshloom::kernels {

enum class RopePairing : std::uint8_t { half, interleaved };  // features (p, p + dims/2), or (2p, 2p + 1)

struct RopeOptions {
  double theta = 10000.0;
  RopePairing pairing = RopePairing::half;
  std::int64_t dims = 0;    // rotated features, even; 0 = D
  std::int64_t offset = 0;  // position of the first row
};

// op "rope": input x (B, S, H, D); attrs theta (number), pairing (text "half" | "interleaved"), dims, offset
// (integers), inverse (flag: rotates backwards, which is the gradient); output like x, may share its storage.
Tensor rope(Tensor x, const RopeOptions& options);

}  // namespace meshloom::kernels
