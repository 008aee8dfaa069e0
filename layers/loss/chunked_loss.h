// A loss that is computed for a chunk of the tokens at a time, so that the logits of all tokens never exist at once.
#pragma once

#include "layers/loss/loss.h"

namespace meshloom::layers {

// `base` for chunks of `chunk_size` tokens. The backward pass recomputes the logits of a chunk: one more product with
// the head's weight saves the memory of (tokens x vocabulary) numbers.
class ChunkedLoss : public TokenLoss {
 public:
  struct Config : ConfigOf<Config, TokenLoss::Config> {
    static constexpr std::string_view kName = "ChunkedLoss";
    static constexpr std::string_view kAbout =
        "A loss that is computed chunk by chunk, so that the logits of all tokens never exist at once.";
    Child<TokenLoss::Config> base = CrossEntropy::Config{};
    std::int64_t chunk_size = 1024;

    void fields(FieldVisitor& v) override {
      v("base", base, {"The loss of each chunk."});
      v("chunk_size", chunk_size, {"The number of tokens of a chunk.", at_least(1), formerly("rows")});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  ChunkedLoss(const Config& config, const Place& place);
  Result forward(Context& ctx, Tensor logits, Tensor targets) override;
  std::int64_t chunk_size() const override { return chunk_size_; }
  Result combine(Context& caller, Result tokens) override { return base_->combine(caller, tokens); }

 private:
  TokenLoss* base_;
  std::int64_t chunk_size_;
};

}  // namespace meshloom::layers
