// Learned relative position biases, as in T5.
#pragma once

#include <string>

#include "layers/position/distance_bias.h"

namespace meshloom::layers {

// A learned bias per head and bucket of distances (Raffel et al., 2020). Each short distance has its own bucket, longer
// ones share buckets whose size grows with the logarithm of the distance, and all beyond max_distance are in the last
// one. T5 does not scale its scores, which the attention's `scale=1` expresses. The layers of T5 share one table; here
// each attention has its own. The bias takes heads x S x S floats, of one layer at a time: it is recomputed for the
// backward pass (tag "recompute.distance_bias"), where its gradient takes as much.
class RelativeBias : public DistanceBias {
 public:
  struct Config : ConfigOf<Config, DistanceBias::Config> {
    static constexpr std::string_view kName = "RelativeBias";
    static constexpr std::string_view kAbout =
        "A learned bias per head and bucket of distances, as in T5 (Raffel et al., 2020).";
    std::int64_t buckets = 32, max_distance = 128;
    // Whether half of the buckets are for keys after the query. Otherwise these are all in the first bucket.
    bool bidirectional = false;
    Child<Initializer> init = Normal{};

    void fields(FieldVisitor& v) override {
      v("buckets", buckets,
        {"The number of buckets of distances, each with a learned bias per head.", positive_multiple_of(2)});
      v("max_distance", max_distance,
        {"The distance, in tokens, from which on all are in the last bucket.", at_least(1)});
      v("bidirectional", bidirectional,
        {"Whether half of the buckets are for keys after the query; else these are all in the first "
         "bucket."});
      v("init", init, {"How the table (buckets, heads) is initialised."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  RelativeBias(const Config& config, const Place& place);
  void apply(Context& ctx, kernels::FlashAttentionOptions& options) override;

  // The bucket of the distance x0 = key - query, as an expression (kernels/elementwise/expression.h).
  static std::string bucket(std::int64_t buckets, std::int64_t max_distance, bool bidirectional);

 private:
  std::string bucket_;
  const Parameter& weight_;  // (buckets, heads)
};

}  // namespace meshloom::layers
