// AdamW whose moments are kept in eight bits, by blocks (Dettmers, Lewis, Shleifer and Zettlemoyer, 8-bit optimizers via
// block-wise quantization, 2022).
#pragma once

#include <cstdint>

#include "kernels/adamw/adamw.h"

namespace meshloom::kernels {

// Consecutive elements that share a scale.
constexpr std::int64_t kMomentBlock = 256;
// A block's codes, then its scale: an f32 in the order of the machine's bytes.
constexpr std::int64_t kMomentBlockBytes = kMomentBlock + 4;

// One quantized moment of a parameter: u8 (blocks, kMomentBlockBytes). All zeros are moments of zero.
TensorType moment_type(const TensorType& parameter);

// The magnitude of a code in [0, 255], in units of ten times (m) or once (the root of v) the block's scale: the dynamic tree of
// the paper, in which the number of leading zeros is a power of ten and the rest a fraction of it. For 2^j <= code < 2^(j+1)
//   10^(j-7) (0.1 + 0.9 (code - 2^j + 1) / 2^j),  0 for code 0.
// Unlike the paper's, every decade ends at its power of ten, so that the largest element of a block is exact.
double moment_magnitude(int code);
// The code of the nearest magnitude to y in [0, 1].
int moment_code(double y);

// op "adamw_8bit"
// inputs: p, g (f32, one shape), m, v (moment_type), control (4) f32 as of "adamw".   attrs: as of "adamw"; with `dtype` there is
//   the same copy of p', the fourth output.
// outputs: p', m', v'; each may share storage with p, m, v. Where apply = 0 they are copies, whatever g holds. Else the moments
// are decoded, p', m', v' computed as by "adamw", and the moments coded again:
//   m: scale s = max |m'| of the block; code = moment_code(|m'| / (10 s)) <= 127, plus 128 where m' is negative and the code not 0
//   v: scale s = max sqrt(v') of the block; code = moment_code(sqrt(v') / s), at least 1 where v' > 0: a second moment that
//      rounds to 0 would make the next update as large as m / eps
// Codes of a block of scale below 1e-30 are 0; so are those beyond the last element.
AdamWResult adamw_8bit(Tensor p, Tensor g, Tensor m, Tensor v, Tensor control, const AdamWOptions& options);

}  // namespace meshloom::kernels
