// A model that was made for sequences up to a length, and has nothing that would fail on longer ones.
#pragma once

#include "layers/position/position.h"

namespace meshloom::layers {

// Gives the embeddings through; the model refuses longer sequences.
class SequenceLimit : public EmbeddingPosition {
 public:
  struct Config : ConfigOf<Config, EmbeddingPosition::Config> {
    static constexpr std::string_view kName = "SequenceLimit";
    static constexpr std::string_view kAbout = "Changes nothing; the model refuses longer sequences.";
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

}  // namespace meshloom::layers
