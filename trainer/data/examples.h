// Examples to train on, as tokens, that are independent of each other: documents, or prompts with their
// answers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace meshloom::trainer {

struct Example {
  std::vector<std::int32_t> tokens;
  std::vector<char> loss_mask;  // by token: 1 = the model is trained to predict it from those before it
  std::vector<std::int32_t> source = {};  // the tokens that the encoder reads, if the model has one
  // Of a preference, which is two documents, prompts with their answers: where that of the rejected answer begins; else 0.
  std::size_t rejected = 0;
  // Of a preference: the log-probabilities of the chosen and the rejected answer under a reference model, if they are known.
  std::optional<std::array<double, 2>> reference = {};

  // The positions of a row that it takes: a document's last token is a target alone.
  std::int64_t positions() const { return static_cast<std::int64_t>(tokens.size()) - (rejected > 0 ? 2 : 1); }
};

// What a model continues.
struct Prompt {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> source = {};  // the tokens that the encoder reads; empty when the model has none
};

class Examples {
 public:
  virtual ~Examples() = default;
  virtual std::int64_t size() const = 0;
  // The number of an example's tokens without its source: at least 2, and at most one more than a row has; two more for
  // preferences.
  virtual std::int64_t length(std::int64_t index) const = 0;
  virtual std::int64_t source_length(std::int64_t /*index*/) const { return 0; }
  // The positions of a row that it takes (Example::positions).
  virtual std::int64_t positions(std::int64_t index) const { return length(index) - 1; }
  virtual Example read(std::int64_t index) const = 0;
  virtual std::uint64_t hash(std::int64_t index) const = 0;  // hash_of(read(index))
};

// xxhash64 of the tokens, the loss mask, and the source or what else a preference has, if there is one.
std::uint64_t hash_of(const Example& example);

// The examples [begin, end).
struct ExampleRange {
  const Examples* examples = nullptr;
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  std::int64_t tokens() const;
  std::uint64_t fingerprint() const;
};

// The examples to train on, and those that are held out: all of `eval`, or where that is nullptr a fraction of the others, from their end.
// Throws Error where there is none to hold out.
std::pair<ExampleRange, ExampleRange> split(const Examples& all, const Examples* eval, double eval_fraction);

}  // namespace meshloom::trainer
