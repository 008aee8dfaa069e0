// A tokenizer whose special tokens that mark calls of tools are visible in texts, as special tokens are not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

// The special tokens of a tokenizer with one of these names, which have no text when they are decoded.
std::vector<std::int32_t> hidden_tokens(const Tokenizer& tokenizer, std::span<const std::string_view> names);

class MarkedTokenizer : public Tokenizer {
 public:
  // `tokenizer` must outlive this; `shown` are decoded to their names.
  MarkedTokenizer(const Tokenizer& tokenizer, std::vector<std::int32_t> shown);

  std::string name() const override { return tokenizer_.name(); }
  std::int64_t vocabulary() const override { return tokenizer_.vocabulary(); }
  std::vector<std::int32_t> encode(std::string_view text) const override { return tokenizer_.encode(text); }
  std::vector<std::int32_t> encode_part(std::string_view text) const override {
    return tokenizer_.encode_part(text);
  }
  std::vector<std::int32_t> begin_of_text() const override { return tokenizer_.begin_of_text(); }
  std::optional<std::int32_t> end_of_text() const override { return tokenizer_.end_of_text(); }
  bool end_is_guessed() const override { return tokenizer_.end_is_guessed(); }
  std::string token(std::int32_t id) const override { return tokenizer_.token(id); }
  std::optional<std::int32_t> find(std::string_view token) const override { return tokenizer_.find(token); }
  bool is_added(std::int32_t id) const override { return tokenizer_.is_added(id); }
  EncodingWithOffsets encode_with_offsets(std::string_view text,
                                          std::span<const std::size_t> bytes) const override {
    return tokenizer_.encode_with_offsets(text, bytes);
  }
  std::string decode(std::span<const std::int32_t> ids) const override;

 private:
  const Tokenizer& tokenizer_;
  const std::vector<std::int32_t> shown_;
};

}  // namespace meshloom::trainer
