// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;           // "bytes", "sentencepiece FILE"
  virtual std::int64_t vocabulary() const = 0;    // ids are in [0, vocabulary)
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // The text alone, and what encode() puts in front of a text.
  virtual std::vector<std::int32_t> encode_part(std::string_view text) const { return encode(text); }
  virtual std::vector<std::int32_t> begin_of_text() const { return {}; }
  // The token that says a text is over; none where the vocabulary has no such.
  virtual std::optional<std::int32_t> end_of_text() const { return {}; }
  // Ids outside the vocabulary are left out.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
};

// One token per byte; vocabulary 256. Takes any file; the byte 0 ends a text.
std::unique_ptr<Tokenizer> byte_tokenizer();

// Reads a SentencePiece model file. Throws Error when it cannot be read or is not such a model.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const std::string& path);

}  // namespace meshloom::trainer
