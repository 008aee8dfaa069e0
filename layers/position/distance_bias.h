// Biases on attention scores that depend on the distance between positions, in place of position embeddings.
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
        "A bias on attention scores that depends on the distance between positions.";
    using Built = DistanceBias;
    using Dims = DistanceBias::Dims;
    Dims dims;
  };
  using Module::Module;
  // Sets the options of an attention over the positions of Tokens. `ctx` is the context of this call itself.
  virtual void apply(Context& ctx, kernels::FlashAttentionOptions& options) = 0;
  // Calls apply() in a context below the attention's.
  void operator()(Context& caller, kernels::FlashAttentionOptions& options) {
    Context ctx = caller.child(name());
    apply(ctx, options);
  }
};

// ALiBi: slope |i - j| is subtracted from the score of positions i and j, with a constant slope per head (Press et al.,
// 2022).
class Alibi : public DistanceBias {
 public:
  struct Config : ConfigOf<Config, DistanceBias::Config> {
    static constexpr std::string_view kName = "Alibi";
    static constexpr std::string_view kAbout =
        "ALiBi: subtracts the distance times a constant slope per head from scores (Press et al., 2022).";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Alibi(const Config& config, const Place& place) : DistanceBias(place), slopes_(slopes(config.dims.heads)) {}
  void apply(Context& ctx, kernels::FlashAttentionOptions& options) override;

  // The slopes of the paper: the powers of 2^(-8 / heads), from the first. If heads is not a power of two, those for the
  // next lower power of two, followed by every other one of those for the next higher.
  static std::vector<double> slopes(std::int64_t heads);

 private:
  std::vector<double> slopes_;
};

}  // namespace meshloom::layers
