// RoPE scaling: rotary positions with other frequencies, for longer sequences than the model was first trained on. Each
// class has the fields of RotaryPosition too.
#pragma once

#include "layers/position/position.h"

namespace meshloom::layers {

// Position interpolation: every rotation is `factor` times slower (Chen et al., 2023).
struct LinearRotaryPosition : ConfigOf<LinearRotaryPosition, RotaryPosition::Config> {
  static constexpr std::string_view kName = "LinearRotaryPosition";
  static constexpr std::string_view kAbout =
      "Rotary positions with linear scaling: every rotation is slower by a factor (Chen et al., 2023).";
  double factor = 1;

  void fields(FieldVisitor& v) override;
  void adjust(kernels::RopeOptions& options, const std::string& path) const override;
};

// NTK-aware scaling: a larger theta, with which the slowest rotation is `factor` times slower and the fastest one
// unchanged.
struct NtkRotaryPosition : ConfigOf<NtkRotaryPosition, RotaryPosition::Config> {
  static constexpr std::string_view kName = "NtkRotaryPosition";
  static constexpr std::string_view kAbout =
      "Rotary positions with NTK-aware scaling: a larger theta makes slow rotations slower by a factor.";
  double factor = 1;

  void fields(FieldVisitor& v) override;
  void adjust(kernels::RopeOptions& options, const std::string& path) const override;
};

// The scaling of Llama 3.1 (rope_type "llama3" in transformers): rotations of fewer than low_frequency_factor turns in
// original_length positions are `factor` times slower, those of more than high_frequency_factor turns are unchanged, and
// those in between are interpolated.
struct Llama3RotaryPosition : ConfigOf<Llama3RotaryPosition, RotaryPosition::Config> {
  static constexpr std::string_view kName = "Llama3RotaryPosition";
  static constexpr std::string_view kAbout =
      "Rotary positions with the scaling of Llama 3.1: slow rotations are slower by a factor.";
  double factor = 8;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  Required<std::int64_t> original_length;

  Llama3RotaryPosition() { theta = 500000; }
  void fields(FieldVisitor& v) override;
  void adjust(kernels::RopeOptions& options, const std::string& path) const override;
};

// YaRN (Peng et al., 2023): pairs of fewer than beta_slow turns in original_length positions are `factor` times slower,
// those of more than beta_fast turns are unchanged, and those in between are interpolated by a ramp over the pairs.
// Queries and keys are multiplied by attention_factor, because attention over more positions has a larger entropy.
struct YarnRotaryPosition : ConfigOf<YarnRotaryPosition, RotaryPosition::Config> {
  static constexpr std::string_view kName = "YarnRotaryPosition";
  static constexpr std::string_view kAbout =
      "Rotary positions with YaRN: slow rotations are slower by a factor, and scores grow (Peng et al., "
      "2023).";
  double factor = 1;
  Required<std::int64_t> original_length;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;                    // whether the ends of the ramp are truncated to whole pairs
  std::optional<double> attention_factor;  // none = 1 + 0.1 ln(factor)

  void fields(FieldVisitor& v) override;
  void adjust(kernels::RopeOptions& options, const std::string& path) const override;
};

}  // namespace meshloom::layers
