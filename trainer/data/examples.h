// Texts that know nothing of each other, each in tokens: documents, questions with their answers.
#pragma once

#include <cstdint>
#include <vector>

namespace meshloom::trainer {

struct Example {
  std::vector<std::int32_t> tokens;
  std::vector<char> learn;                // by token: whether it is to be predicted from those before it
  std::vector<std::int32_t> source = {};  // what a model with an encoder reads first
};

class Examples {
 public:
  virtual ~Examples() = default;
  virtual std::int64_t size() const = 0;
  // Tokens of an example, its source apart: at least 2, at most one more than a row takes.
  virtual std::int64_t length(std::int64_t index) const = 0;
  virtual std::int64_t source_length(std::int64_t /*index*/) const { return 0; }
  virtual Example read(std::int64_t index) const = 0;
  virtual std::uint64_t hash(std::int64_t index) const = 0;  // hash_of(read(index))
};

// Of the tokens, of which are learned, and of the source where there is one.
std::uint64_t hash_of(const Example& example);

// Examples [begin, end).
struct ExampleRange {
  const Examples* examples = nullptr;
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  std::int64_t tokens() const;
  std::uint64_t fingerprint() const;
};

}  // namespace meshloom::trainer
