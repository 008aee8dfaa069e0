// An input that was opened: what trains, what is held out, and what a run remembers of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/input/batches.h"
#include "trainer/input/prompt.h"
#include "trainer/input/tokenizer.h"

namespace meshloom::trainer {

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
  // What a user should be told: examples that were cut, ...
  virtual std::vector<std::string> notes() const { return {}; }
};

// Throws Error when the tokenizer has ids that a model of this vocabulary has not.
void check_vocabulary(const Tokenizer& tokenizer, std::int64_t vocabulary);

}  // namespace meshloom::trainer
