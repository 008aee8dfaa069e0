#include "trainer/data/example_data.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "hal/error.h"
#include "trainer/data/packing/packed_rows.h"

namespace meshloom::trainer {
namespace {

class ExampleData : public Dataset {
 public:
  ExampleData(std::unique_ptr<Examples> train, std::unique_ptr<Examples> eval, ExampleDataOptions options)
      : options_(std::move(options)), all_(std::move(train)), held_(std::move(eval)) {
    std::tie(train_, eval_) = split(*all_, held_.get(), options_.eval_fraction);
    if (train_.size() < 1) throw Error("data", "must hold at least one example", "none");
  }

  std::int64_t train_tokens() const override { return train_.tokens(); }
  std::int64_t eval_tokens() const override { return eval_.tokens(); }
  std::uint64_t fingerprint() const override { return train_.fingerprint(); }
  std::unique_ptr<Batches> train(std::int64_t batch, std::uint64_t seed) const override {
    return std::make_unique<PackedRows>(train_, batch, options_.sequence, seed, options_.shuffle,
                                        options_.pack, options_.source, max_examples_per_row());
  }
  std::unique_ptr<Batches> eval() const override {
    if (eval_.size() == 0) return nullptr;
    return std::make_unique<PackedRows>(eval_, 1, options_.sequence, 0, false, options_.pack, options_.source,
                                        max_examples_per_row());
  }
  // The prompt of the first held-out example, or the example's first tokens when it has no prompt.
  Prompt prompt(std::int64_t max_tokens) const override {
    const ExampleRange& from = eval_.size() > 0 ? eval_ : train_;
    Example example = from.examples->read(from.begin);
    const auto given =
        std::find(example.loss_mask.begin(), example.loss_mask.end(), 1) - example.loss_mask.begin();
    auto count =
        static_cast<std::size_t>(given > 1 || !example.source.empty() ? given : example.loss_mask.size() - 1);
    if (given > 1 &&
        count > static_cast<std::size_t>(max_tokens))  // the answer follows the end of the prompt
      example.tokens.erase(example.tokens.begin(),
                           example.tokens.begin() + static_cast<std::ptrdiff_t>(count) - max_tokens);
    example.tokens.resize(std::min(count, static_cast<std::size_t>(max_tokens)));
    return {std::move(example.tokens), std::move(example.source)};
  }
  TargetFormat target_format() const override { return options_.target_format; }
  bool has_preferences() const override { return options_.preferences; }
  bool has_reference() const override { return options_.reference; }
  std::int64_t examples() const override { return train_.size(); }
  Example example(std::int64_t index) const override { return train_.examples->read(train_.begin + index); }
  std::vector<std::string> notes() const override { return options_.notes; }

 private:
  std::int64_t max_examples_per_row() const {
    return options_.preferences ? options_.preferences_per_row : std::numeric_limits<std::int64_t>::max();
  }

  ExampleDataOptions options_;
  std::unique_ptr<Examples> all_, held_;
  ExampleRange train_, eval_;
};

}  // namespace

std::unique_ptr<Dataset> example_data(std::unique_ptr<Examples> train, std::unique_ptr<Examples> eval,
                                      const ExampleDataOptions& options) {
  return std::make_unique<ExampleData>(std::move(train), std::move(eval), options);
}

}  // namespace meshloom::trainer
