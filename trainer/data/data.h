// An input that was opened: what trains, what is held out, and what a run remembers of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/batches.h"
#include "trainer/data/examples.h"
#include "trainer/data/prompt.h"
#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

// How what is learned is written, as far as generation and other programs have to know it.
struct TargetFormat {
  std::vector<std::int32_t> ends = {};  // the tokens that answers and documents end with, each once
  std::string chat_template =
      {};  // the built-in format that messages were written in; "" = the tokenizer's, or no messages
  std::optional<std::int64_t> chat_time = {};  // what a template that asks for the time was told
};

class Data {
 public:
  virtual ~Data() = default;
  virtual std::int64_t train_tokens() const = 0;
  virtual std::int64_t eval_tokens() const = 0;  // 0 = nothing is held out
  // Of the training part: what a checkpoint holds its run to.
  virtual std::uint64_t fingerprint() const = 0;
  // Both read from this object, which must outlive them. Evaluation rows come in the data's own order, one
  // per step.
  virtual std::unique_ptr<Batches> train(std::int64_t batch, std::uint64_t seed) const = 0;
  virtual std::unique_ptr<Batches> eval() const = 0;  // nullptr without held-out tokens
  // At most so many tokens that a sample of a model's text may go on from, with their source.
  virtual Prompt prompt(std::int64_t most) const = 0;
  virtual TargetFormat learned() const { return {}; }
  // Examples that train, or, of running text, windows of a row; and one of them in the order of the files, as it is learned.
  virtual std::int64_t examples() const = 0;
  virtual Example example(std::int64_t index) const = 0;
  // What a user should be told: examples that were cut, ...
  virtual std::vector<std::string> notes() const { return {}; }
};

// Throws Error when the tokenizer has ids that a model of this vocabulary has not.
void check_vocabulary(const Tokenizer& tokenizer, std::int64_t vocabulary);

}  // namespace meshloom::trainer
