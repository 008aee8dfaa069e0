// Rotary positions for longer sequences than a model first learned: slow rotations are slowed further.
// Source: "Llama 3.1" as transformers computes it (rope_type llama3).
#pragma once

#include "kernels/rope/rope.h"
#include "layers/position.h"

namespace meshloom::layers {

class ScaledRotaryPosition : public QueryKeyPosition {
 public:
  struct Config : ConfigOf<Config, QueryKeyPosition::Config> {
    static constexpr std::string_view kName = "ScaledRotaryPosition";
    double theta = 500000;
    double factor = 8;                     // how much slower the slowest rotations get
    double low_frequency_factor = 1;       // slower than this many turns in original_length: wholly
    double high_frequency_factor = 4;      // faster than this many: not at all; in between: in part
    Required<std::int64_t> original_length;

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  ScaledRotaryPosition(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t head_dim_;
  kernels::RopeOptions options_;
};

}  // namespace meshloom::layers
