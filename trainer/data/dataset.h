// An input that was opened: the training part and the evaluation part of its data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/batches.h"
#include "trainer/data/examples.h"
#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

// How the targets are written, as far as generation and other programs need to know.
struct TargetFormat {
  std::vector<std::int32_t> ends = {};  // the tokens that end answers and documents, each once
  // The built-in format of messages; "" = they have the tokenizer's own format, or there are none.
  std::string chat_template = {};
  std::optional<std::int64_t> chat_time = {};  // the time that a template was given, where it asks for it
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t train_tokens() const = 0;
  virtual std::int64_t eval_tokens() const = 0;  // 0 = there is no evaluation part
  // A hash of the training part: a checkpoint stores it, and a resumed run must have the same.
  virtual std::uint64_t fingerprint() const = 0;
  // What train() and eval() return reads from this object, which must outlive it. Evaluation rows have the
  // order of the data, one per step.
  virtual std::unique_ptr<Batches> train(std::int64_t batch, std::uint64_t seed) const = 0;
  virtual std::unique_ptr<Batches> eval() const = 0;  // nullptr without an evaluation part
  // A prompt of at most so many tokens, with its source, for a sample of the model's text.
  virtual Prompt prompt(std::int64_t max_tokens) const = 0;
  virtual TargetFormat target_format() const { return {}; }
  // Whether the examples are preferences (Example::rejected), and all have the reference's log-probabilities.
  virtual bool has_preferences() const { return false; }
  virtual bool has_reference() const { return false; }
  // Whether the examples are prompts, whose answers the model is to write while it trains; then train() has no rows.
  virtual bool has_prompts() const { return false; }
  // The number of training examples (windows of one row, of running text), and one of them, in the order of
  // the files.
  virtual std::int64_t examples() const = 0;
  virtual Example example(std::int64_t index) const = 0;
  // The number of prompts that are held out, whose indices are those behind the training examples.
  virtual std::int64_t eval_prompts() const { return 0; }
  // The line of a prompt in its file.
  virtual std::string line(std::int64_t /*index*/) const { return {}; }
  // What a user should know, such as that examples were cut.
  virtual std::vector<std::string> notes() const { return {}; }
};

// Throws Error when the tokenizer has ids beyond the model's vocabulary.
void check_vocabulary(const Tokenizer& tokenizer, std::int64_t vocabulary);

}  // namespace meshloom::trainer
