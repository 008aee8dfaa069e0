// Rotary position embedding (Su et al., 2021): pair p of the first `dims` features of position s is rotated
// by the angle (s + offset) * theta^(-2p/dims), or by that of a position of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/program/builder.h"

namespace meshloom::kernels {

enum class RopePairing : std::uint8_t { half, interleaved };  // features (p, p + dims/2), or (2p, 2p + 1)

// Other frequencies than theta's, for sequences longer than a model first learned. Pair p, which turns by f
// radians per position, turns by f (kept + (1 - kept) / factor) instead, where kept = clamp(by_frequency f +
// by_pair p + shift, 0, 1): all of them slowed alike (Chen et al., 2023: kept = 0), a ramp over frequencies
// (Llama 3.1) or over pairs (Peng et al., 2023: YaRN).
struct RopeScaling {
  double factor = 1, by_frequency = 0, by_pair = 0, shift = 0;
};

struct RopeOptions {
  double theta = 10000.0;
  RopePairing pairing = RopePairing::half;
  std::int64_t dims = 0;    // rotated features, even; 0 = D
  std::int64_t offset = 0;  // position of the first row
  std::optional<RopeScaling> scaling = {};
  std::vector<double> factors =
      {};                  // pair p turns factors[p] times slower, in place of a scaling; empty = none
  double magnitude = 1;    // rotated features are multiplied by it
  bool backwards = false;  // by the negative angles
  Tensor positions = {};   // optional: (B, S) i32, in place of the row's index s
};

// op "rope": input x (B, S, H, D), a float dtype, then, where the flag of its name is set, positions (B, S) i32: row s of batch b
// stands at positions[b, s] + offset in place of s + offset (of positions below -2^20 or above 2^20 the angle is not accurate);
// attrs theta (number), pairing (text "half" |
// "interleaved"), dims, offset (integers), inverse (flag: rotates backwards, which is the gradient),
// optionally magnitude and RopeScaling's factor, by_frequency, by_pair and shift (numbers), or factors (text: one number for
// each pair, "1 1.25"); output like x, may share its storage.
Tensor rope(Tensor x, const RopeOptions& options);

// What the attributes of a call say; what is left out has its default.
RopeScaling rope_scaling(const Attrs& attrs);
std::vector<double> rope_factors(const Attrs& attrs);  // empty = none
// Numbers with a space between them. Throws Error.
std::vector<double> parse_rope_factors(const std::string& text);
std::string to_text(const std::vector<double>& factors);
double rope_magnitude(const Attrs& attrs);
bool rope_positions(const CallView& call);  // whether it has them, as its input 1

}  // namespace meshloom::kernels
