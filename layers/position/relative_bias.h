// Attention biases that are learned, by the distance between query and key.
#pragma once

#include <string>

#include "layers/position/distance_bias.h"

namespace meshloom::layers {

// A number per head and bucket of distances (Raffel et al., T5, 2020): near distances have a bucket each,
// farther ones share buckets that grow with the logarithm, and all beyond max_distance are in the last. T5
// does not scale its scores: the attention's `scale=1` says so. Its layers share one table; here each
// attention has its own. In memory are heads S S floats of one layer at a time: the bias is made again for
// the backward pass (tag "recompute.distance_bias"), where its gradient is as large.
class RelativeBias : public DistanceBias {
 public:
  struct Config : ConfigOf<Config, DistanceBias::Config> {
    static constexpr std::string_view kName = "RelativeBias";
    static constexpr std::string_view kAbout =
        "A learned number per head and range of distances (Raffel et al., 2020).";
    std::int64_t buckets = 32, max_distance = 128;
    bool bidirectional =
        false;  // half of the buckets are for keys after the query; else those are all in the first
    Child<Initializer> init = Normal{};

    void fields(FieldVisitor& v) override {
      v("buckets", buckets,
        {"How many distances and ranges of distances have a number of their own per head.",
         positive_multiple_of(2)});
      v("max_distance", max_distance,
        {"The distance from which on all are in the last bucket, in tokens.", at_least(1)});
      v("bidirectional", bidirectional,
        {"Whether half of the buckets are for keys after the query; else those are all in the first."});
      v("init", init, {"How the table (buckets, heads) starts."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  RelativeBias(const Config& config, const Place& place);
  void apply(Context& ctx, kernels::FlashAttentionOptions& options) override;

  // The bucket of a distance x0, key minus query, as an expression (kernels/elementwise/expression.h).
  static std::string bucket(std::int64_t buckets, std::int64_t max_distance, bool bidirectional);

 private:
  std::string bucket_;
  const Parameter& weight_;  // (buckets, heads)
};

}  // namespace meshloom::layers
