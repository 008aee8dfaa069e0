// LongRoPE (Ding et al., 2024; Phi-3): rotary positions in which every pair is slower by a factor of its own.
#pragma once

#include <string>

#include "layers/position/position.h"

namespace meshloom::layers {

// Texts of up to original_length tokens have other factors than longer ones, and keys that a cache has kept were rotated by
// those of the length that the text had then. So a model has one of the two: without long_texts it refuses longer sequences,
// and is exact for all others; with long_texts every text has the long factors, which is exact for texts that are longer than
// original_length from the start.
struct LongRotaryPosition : ConfigOf<LongRotaryPosition, RotaryPosition::Config> {
  static constexpr std::string_view kName = "LongRotaryPosition";
  static constexpr std::string_view kAbout =
      "Rotary positions with LongRoPE: every pair is slower by a factor of its own (Ding et al., 2024).";
  Required<std::string> short_factors;  // one number for each pair, "1 1.25"
  Required<std::string> long_factors;
  Required<std::int64_t> original_length;
  double attention_factor = 1;
  bool long_texts = false;

  void fields(FieldVisitor& v) override;
  void adjust(kernels::RopeOptions& options, const std::string& path) const override;
  std::int64_t max_sequence() const override;
};

}  // namespace meshloom::layers
