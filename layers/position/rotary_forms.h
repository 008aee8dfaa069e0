// Rotary positions whose frequencies are not theta's: for sequences longer than a model first learned. Each
// stands where a RotaryPosition stands and has its fields too.
#pragma once

#include "layers/position/position.h"

namespace meshloom::layers {

// Every rotation `factor` times slower (Chen et al., 2023).
struct LinearRotaryPosition : ConfigOf<LinearRotaryPosition, RotaryPosition::Config> {
  static constexpr std::string_view kName = "LinearRotaryPosition";
  static constexpr std::string_view kAbout =
      "Rotary positions, every rotation slower by a factor (Chen et al., 2023).";
  double factor = 1;

  void fields(FieldVisitor& v) override;
  void adjust(kernels::RopeOptions& options, const std::string& path) const override;
};

// A larger theta, such that the slowest rotation is `factor` times slower and the fastest stays: "NTK-aware"
// scaling.
struct NtkRotaryPosition : ConfigOf<NtkRotaryPosition, RotaryPosition::Config> {
  static constexpr std::string_view kName = "NtkRotaryPosition";
  static constexpr std::string_view kAbout =
      "Rotary positions with a larger theta: the slowest rotation is slower by a factor, the fastest stays.";
  double factor = 1;

  void fields(FieldVisitor& v) override;
  void adjust(kernels::RopeOptions& options, const std::string& path) const override;
};

// Rotations of fewer than low_frequency_factor turns in original_length positions `factor` times slower,
// those of more than high_frequency_factor as they are, in between in part (Llama 3.1; rope_type llama3 of
// transformers).
struct ScaledRotaryPosition : ConfigOf<ScaledRotaryPosition, RotaryPosition::Config> {
  static constexpr std::string_view kName = "ScaledRotaryPosition";
  static constexpr std::string_view kAbout =
      "Rotary positions as Llama 3.1 stretches them: slow rotations are slower by a factor, fast ones stay.";
  double factor = 8;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  Required<std::int64_t> original_length;

  ScaledRotaryPosition() { theta = 500000; }
  void fields(FieldVisitor& v) override;
  void adjust(kernels::RopeOptions& options, const std::string& path) const override;
};

// YaRN (Peng et al., 2023): pairs slower than beta_slow turns in original_length positions `factor` times
// slower, those faster than beta_fast as they are, in between by a ramp over the pairs; and queries and keys
// both grow by attention_factor, as the entropy of attention over more positions asks.
struct YarnRotaryPosition : ConfigOf<YarnRotaryPosition, RotaryPosition::Config> {
  static constexpr std::string_view kName = "YarnRotaryPosition";
  static constexpr std::string_view kAbout =
      "YaRN: slow rotations are slower by a factor, fast ones stay, and scores grow (Peng et al., 2023).";
  double factor = 1;
  Required<std::int64_t> original_length;
  double beta_fast = 32;
  double beta_slow = 1;
  bool whole_pairs = true;                 // the ramp begins and ends at a pair
  std::optional<double> attention_factor;  // none = 1 + 0.1 ln(factor)

  void fields(FieldVisitor& v) override;
  void adjust(kernels::RopeOptions& options, const std::string& path) const override;
};

}  // namespace meshloom::layers
