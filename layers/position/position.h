// Where a token stands in its sequence. Two places in a model can say it, each with its interface: the
// embedding, once, and every attention, on queries and keys.
#pragma once

#include "kernels/rope/rope.h"
#include "layers/core/layer.h"

namespace meshloom::layers {

// Call information: where each token stands in its document, where rows hold several. Who asks for no more than distances
// between tokens of one document (rotations, linear biases) may count along the row as ever: they are the same.
struct Positions {
  Tensor ids;  // (B, S) i32
};

// On embeddings: x (B, S, dim) -> (B, S, dim).
class EmbeddingPosition : public Layer {
 public:
  struct Config : Layer::Config {
    static constexpr std::string_view kAbout = "What tells embeddings (B, S, dim) their positions.";
    using Built = EmbeddingPosition;
  };
  using Layer::Layer;
};

// On queries or keys: x (B, S, heads, head_dim) -> the same shape.
class QueryKeyPosition : public Layer {
 public:
  struct Config : Layer::Config {
    static constexpr std::string_view kAbout =
        "What tells queries and keys (B, S, heads, head_dim) their positions.";
    using Built = QueryKeyPosition;
  };
  using Layer::Layer;
};

// Adds a learned row per position.
class LearnedPosition : public EmbeddingPosition {
 public:
  struct Config : ConfigOf<Config, EmbeddingPosition::Config> {
    static constexpr std::string_view kName = "LearnedPosition";
    static constexpr std::string_view kAbout = "Adds a learned vector per position.";
    Required<std::int64_t> max_length;
    Child<Initializer> init = Normal{};

    void fields(FieldVisitor& v) override {
      v("max_length", max_length,
        {"The longest sequence, in tokens.", at_least(1), means("longest sequence")});
      v("init", init, {"How the vectors of the positions start."});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::int64_t max_sequence() const override { return max_length; }
  };

  LearnedPosition(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t max_length_;
  const Parameter& weight_;  // (max_length, dim)
};

// Rotates pairs of features by angles that grow with the position (Su et al., 2021).
class RotaryPosition : public QueryKeyPosition {
 public:
  struct Config : ConfigOf<Config, QueryKeyPosition::Config> {
    static constexpr std::string_view kName = "RotaryPosition";
    static constexpr std::string_view kAbout =
        "Turns pairs of features by angles that grow with the position (Su et al., 2021).";
    double theta = 10000;
    std::string pairing = "half";             // or "interleaved": which features are pairs
    std::optional<std::int64_t> rotary_dims;  // the first so many features; none = all

    void fields(FieldVisitor& v) override {
      v("theta", theta,
        {"The base of the angles: pair p of D features turns by theta^(-2p/D) radians per position.",
         above(0)});
      v("pairing", pairing,
        {"Which features are pairs: p and p + D/2, or 2p and 2p + 1.", one_of("half", "interleaved")});
      v("rotary_dims", rotary_dims,
        {"How many features of a head are turned, from its first; none: all.", at_least(2)});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    // Other frequencies, where a form of this has them; `options` holds what the fields above say. Throws Error
    // (where = `path`) on fields that make no sense.
    virtual void adjust(kernels::RopeOptions&, const std::string& /*path*/) const {}
  };

  RotaryPosition(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t head_dim_;
  kernels::RopeOptions options_;
};

}  // namespace meshloom::layers
