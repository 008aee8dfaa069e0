// A loss that asks for scores of some tokens at a time, so that the scores of all of them never exist at
// once.
#pragma once

#include "layers/loss/loss.h"

namespace meshloom::layers {

// `base` on slices of `rows` tokens. The backward pass makes the scores of a slice again instead of keeping
// them: one more product with the head's matrix, for (tokens x vocabulary) numbers of memory.
class SlicedLoss : public TokenLoss {
 public:
  struct Config : ConfigOf<Config, TokenLoss::Config> {
    static constexpr std::string_view kName = "SlicedLoss";
    static constexpr std::string_view kAbout =
        "A loss over slices of the tokens, so that the scores of all of them never exist at once.";
    Child<TokenLoss::Config> base = CrossEntropy::Config{};
    std::int64_t rows = 1024;

    void fields(FieldVisitor& v) override {
      v("base", base, {"The loss of each slice."});
      v("rows", rows, {"Tokens of one slice.", at_least(1)});
    }
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  SlicedLoss(const Config& config, const Place& place);
  Result forward(Context& ctx, Tensor logits, Tensor targets) override;
  std::int64_t rows() const override { return rows_; }

 private:
  TokenLoss* base_;
  std::int64_t rows_;
};

}  // namespace meshloom::layers
