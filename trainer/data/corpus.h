// Text files as one sequence of tokens with a training part and an evaluation part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

// Token ids, each stored in as few bytes as the vocabulary needs.
class TokenArray {
 public:
  explicit TokenArray(std::int64_t vocabulary = 256);
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()) / width_; }
  std::int32_t operator[](std::int64_t index) const;
  // Throws Error (where = `where`) for an id outside the vocabulary.
  void append(std::span<const std::int32_t> ids, const std::string& where);
  // xxhash64 of the tokens [begin, end), which a checkpoint stores.
  std::uint64_t fingerprint(std::int64_t begin, std::int64_t end) const;

 private:
  std::int64_t vocabulary_;
  std::int64_t width_;  // 1, 2 or 4 bytes
  std::vector<std::uint8_t> bytes_;
};

// The tokens [begin, end) of an array.
struct TokenRange {
  const TokenArray* tokens = nullptr;
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  std::int32_t operator[](std::int64_t index) const { return (*tokens)[begin + index]; }
};

struct Corpus {
  TokenArray tokens;       // of all training files, in order
  TokenArray eval_tokens;  // of the evaluation files; empty when the end of `tokens` is held out
  std::int64_t train_end = 0;
  bool separate_eval = false;

  TokenRange train() const { return {&tokens, 0, train_end}; }
  TokenRange eval() const {
    return separate_eval ? TokenRange{&eval_tokens, 0, eval_tokens.size()}
                         : TokenRange{&tokens, train_end, tokens.size()};
  }
};

// Reads a text file, or a pipe to its end. Throws Error when it cannot be read, and, unless `binary`, when it
// is no text (check_text).
std::string read_text(const std::string& path, bool binary);

// Throws Error unless at least one file is named.
void check_files(const std::vector<std::string>& files);

// Reads and joins `files` (read_text). Without `eval_files` the last `eval_fraction` of the tokens is held
// out. Throws Error for no files, an unreadable or empty file, a tokenizer with more ids than `vocabulary`,
// and a part that is shorter than one window of sequence + 1 tokens (when eval_fraction is 0, there may be no
// evaluation tokens).
Corpus read_corpus(const std::vector<std::string>& files, const std::vector<std::string>& eval_files,
                   double eval_fraction, const Tokenizer& tokenizer, std::int64_t vocabulary,
                   std::int64_t sequence, bool binary = false);

}  // namespace meshloom::trainer
