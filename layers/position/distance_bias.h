// What the distance between two positions adds to their attention score, in place of position embeddings.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/flash_attention/flash_attention.h"
#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

class DistanceBias : public Module {
 public:
  struct Dims {
    std::int64_t heads = 0;
  };
  struct Config : Module::Config {
    static constexpr std::string_view kAbout =
        "What the distance between two positions adds to their attention score.";
    using Built = DistanceBias;
    using Dims = DistanceBias::Dims;
    Dims dims;
  };
  using Module::Module;
  // Says its part of an attention over the positions of Tokens, in the context of this very call.
  virtual void apply(Context& ctx, kernels::FlashAttentionOptions& options) = 0;
  // Opens that context below the attention's.
  void operator()(Context& caller, kernels::FlashAttentionOptions& options) {
    Context ctx = caller.child(name());
    apply(ctx, options);
  }
};

// The score of positions i and j loses slope |i - j|, with a constant slope per head.
class Alibi : public DistanceBias {
 public:
  struct Config : ConfigOf<Config, DistanceBias::Config> {
    static constexpr std::string_view kName = "Alibi";
    static constexpr std::string_view kAbout =
        "A score loses a constant slope per head times the distance (Press et al., 2022).";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Alibi(const Config& config, const Place& place) : DistanceBias(place), slopes_(slopes(config.dims.heads)) {}
  void apply(Context& ctx, kernels::FlashAttentionOptions& options) override;

  // A geometric sequence that starts at and falls by 2^(-8 / heads); where heads are not a power of two, that
  // of the power below, then every other one of the power above (Press et al., 2022).
  static std::vector<double> slopes(std::int64_t heads);

 private:
  std::vector<double> slopes_;
};

}  // namespace meshloom::layers
