#include "trainer/data/corpus.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hal/error.h"
#include "trainer/data/dataset.h"
#include "trainer/data/text/file_kind.h"
#include "trainer/io/file.h"

namespace meshloom::trainer {
namespace {

void append_files(const std::vector<std::string>& files, const Tokenizer& tokenizer, bool binary,
                  TokenArray& into) {
  for (const std::string& path : files) {
    const std::string where = "data '" + path + "'";
    const std::string text = read_text(path, binary);
    if (text.empty()) throw Error(where, "a text file must not be empty", "0 bytes");
    tokenizer.encode_to(text, [&](std::span<const std::int32_t> ids) { into.append(ids, where); });
  }
}

void check_length(const TokenRange& part, const char* what, std::int64_t sequence, const std::string& where) {
  if (part.size() < sequence + 1)
    throw Error(where,
                "the " + std::string(what) + " part must hold at least one window of sequence + 1 = " +
                    std::to_string(sequence + 1) + " tokens",
                std::to_string(part.size()) + " tokens");
}

}  // namespace

TokenArray::TokenArray(std::int64_t vocabulary)
    : vocabulary_(vocabulary),
      width_(vocabulary <= 256     ? 1
             : vocabulary <= 65536 ? 2
                                   : 4) {}

std::int32_t TokenArray::operator[](std::int64_t index) const {
  const std::uint8_t* at = bytes_.data() + index * width_;
  if (width_ == 1) return *at;
  if (width_ == 2) return at[0] | at[1] << 8;
  std::int32_t id;
  std::memcpy(&id, at, 4);
  return id;
}

void TokenArray::append(std::span<const std::int32_t> ids, const std::string& where) {
  const std::size_t start = bytes_.size();
  bytes_.resize(start + ids.size() * static_cast<std::size_t>(width_));
  std::uint8_t* at = bytes_.data() + start;
  for (std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary_)
      throw Error(where, "token ids must be below the model's vocabulary of " + std::to_string(vocabulary_),
                  "id " + std::to_string(id));
    for (std::int64_t i = 0; i < width_; ++i) *at++ = static_cast<std::uint8_t>(id >> (8 * i));
  }
}

std::uint64_t TokenArray::fingerprint(std::int64_t begin, std::int64_t end) const {
  return XXH64(bytes_.data() + begin * width_, static_cast<std::size_t>((end - begin) * width_), 0);
}

std::string read_text(const std::string& path, bool binary) {
  const std::string where = "data '" + path + "'";
  std::string text = read_stream(path, where);
  if (!binary) check_text(text, path, where);
  return text;
}

void check_files(const std::vector<std::string>& files) {
  if (files.empty()) throw Error("data", "at least one file must be named (--data FILE)", "none");
}

void check_vocabulary(const Tokenizer& tokenizer, std::int64_t vocabulary) {
  if (tokenizer.vocabulary() > vocabulary)
    throw Error("tokenizer " + tokenizer.name(),
                "its ids must be below the model's vocabulary of " + std::to_string(vocabulary),
                std::to_string(tokenizer.vocabulary()) + " ids");
}

Corpus read_corpus(const std::vector<std::string>& files, const std::vector<std::string>& eval_files,
                   double eval_fraction, const Tokenizer& tokenizer, std::int64_t vocabulary,
                   std::int64_t sequence, bool binary) {
  check_files(files);
  if (!(eval_fraction >= 0 && eval_fraction < 1))
    throw Error("input.eval_fraction", "must be in [0, 1)", std::to_string(eval_fraction));
  check_vocabulary(tokenizer, vocabulary);
  Corpus corpus{TokenArray(vocabulary), TokenArray(vocabulary)};
  append_files(files, tokenizer, binary, corpus.tokens);
  append_files(eval_files, tokenizer, binary, corpus.eval_tokens);
  corpus.separate_eval = !eval_files.empty();
  const std::int64_t total = corpus.tokens.size();
  corpus.train_end = total;
  const std::string where = "data '" + files.front() + "'" + (files.size() > 1 ? " and others" : "");
  if (!corpus.separate_eval && eval_fraction > 0) {
    // For a corpus that is too short for both parts the message names the length of the whole, which the user
    // knows.
    if (total < sequence + 1) check_length(corpus.train(), "training", sequence, where);
    const auto held = static_cast<std::int64_t>(std::llround(static_cast<double>(total) * eval_fraction));
    corpus.train_end = total - std::clamp<std::int64_t>(held, 1, total - 1);
  }
  check_length(corpus.train(), "training", sequence, where);
  if (corpus.separate_eval)
    check_length(corpus.eval(), "evaluation", sequence, "data '" + eval_files.front() + "'");
  else if (eval_fraction > 0)
    check_length(corpus.eval(), "held-out", sequence, where);
  return corpus;
}

}  // namespace meshloom::trainer
