// Positions of tokens in a sequence. A model is given them in one of two places, each of which has an interface: once
// in the embeddings, or in the queries and keys of every attention.
#pragma once

#include "kernels/rope/rope.h"
#include "layers/core/layer.h"

namespace meshloom::layers {

// Call information: the position of each token in its document, if rows are packed with several documents. What only
// depends on the distance between two tokens of a document (rotary positions, linear biases) may use positions in the
// row, but in an InferenceStep, whose row begins anywhere in a sequence.
struct Positions {
  Tensor ids;  // (B, S) i32
};

// Positions in embeddings: x (B, S, dim) -> (B, S, dim).
class EmbeddingPosition : public Layer {
 public:
  struct Config : Layer::Config {
    static constexpr std::string_view kAbout = "Gives embeddings (B, S, dim) their positions.";
    using Built = EmbeddingPosition;
  };
  using Layer::Layer;

 protected:
  // Throws Error where x (B, S, dim) holds longer sequences.
  void check_length(const Context& ctx, Tensor x, std::int64_t max_length) const;
};

// Positions in queries or keys: x (B, S, heads, head_dim) -> the same shape.
class QueryKeyPosition : public Layer {
 public:
  struct Config : Layer::Config {
    static constexpr std::string_view kAbout =
        "Gives queries and keys (B, S, heads, head_dim) their positions.";
    using Built = QueryKeyPosition;
  };
  using Layer::Layer;
};

// Adds a learned vector per position.
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
      v("init", init, {"How the vectors of the positions are initialised."});
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

// Adds nothing, and makes the model refuse longer sequences: for a model that was trained on sequences up to a length,
// and that has no other part with a limit.
class SequenceLimit : public EmbeddingPosition {
 public:
  struct Config : ConfigOf<Config, EmbeddingPosition::Config> {
    static constexpr std::string_view kName = "SequenceLimit";
    static constexpr std::string_view kAbout = "Adds nothing; the model refuses longer sequences.";
    Required<std::int64_t> max_length;

    void fields(FieldVisitor& v) override {
      v("max_length", max_length,
        {"The longest sequence, in tokens.", at_least(1), means("longest sequence")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    std::int64_t max_sequence() const override { return max_length; }
  };

  SequenceLimit(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t max_length_;
};

// Rotary position embedding (RoPE): rotates pairs of features by angles that grow with the position (Su et al., 2021).
class RotaryPosition : public QueryKeyPosition {
 public:
  struct Config : ConfigOf<Config, QueryKeyPosition::Config> {
    static constexpr std::string_view kName = "RotaryPosition";
    static constexpr std::string_view kAbout =
        "RoPE: rotates pairs of features by angles that grow with the position (Su et al., 2021).";
    double theta = 10000;
    std::string pairing = "half";             // which features form pairs: "half" or "interleaved"
    std::optional<std::int64_t> rotary_dims;  // how many features rotate, from the first; none = all

    void fields(FieldVisitor& v) override {
      v("theta", theta,
        {"The base of the angles: pair p of D features rotates by theta^(-2p/D) radians per position.",
         above(0)});
      v("pairing", pairing,
        {"Which features form pairs: p and p + D/2, or 2p and 2p + 1.", one_of("half", "interleaved")});
      v("rotary_dims", rotary_dims,
        {"How many features of a head rotate, from the first; none: all.", at_least(2)});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
    // For derived classes (rope_scaling.h): changes the frequencies in `options`, which the fields above have set.
    // Throws Error, at `path`, if a field has a wrong value.
    virtual void adjust(kernels::RopeOptions&, const std::string& /*path*/) const {}
  };

  RotaryPosition(const Config& config, const Place& place);
  Tensor forward(Context& ctx, Tensor x) override;

 private:
  std::int64_t head_dim_;
  kernels::RopeOptions options_;
};

}  // namespace meshloom::layers
