// Converts text to token ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
  virtual std::string name() const = 0;         // "bytes", "sentencepiece FILE"
  virtual std::int64_t vocabulary() const = 0;  // ids are in [0, vocabulary)
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // Emits the same ids in order, some at a time, so that the ids of a long text need not be in memory
  // together.
  using EmitIds = std::function<void(std::span<const std::int32_t>)>;
  virtual void encode_to(std::string_view text, const EmitIds& emit) const { emit(encode(text)); }
  // The ids of the text alone, and the ids that encode() puts before a text.
  virtual std::vector<std::int32_t> encode_part(std::string_view text) const { return encode(text); }
  virtual std::vector<std::int32_t> begin_of_text() const { return {}; }
  // The end-of-text token, which training appends to documents and answers; none when the vocabulary has
  // none.
  virtual std::optional<std::int32_t> end_of_text() const { return {}; }
  // Whether that token is guessed from its name alone, which the user should know.
  virtual bool end_is_guessed() const { return false; }
  // The token of an id as the vocabulary has it ("<|im_end|>"), "" for an invalid id; and the id of a token.
  virtual std::string token(std::int32_t id) const { return decode({&id, 1}); }
  virtual std::optional<std::int32_t> find(std::string_view /*token*/) const { return {}; }
  // Whether it is an added token: those, special tokens among them, are found in a text before
  // pre-tokenization.
  virtual bool is_added(std::int32_t /*id*/) const { return false; }
  // The ids of a text, in which special tokens are written as text, without the tokens that encode() adds;
  // and for each of `bytes`, which are positions in the text, the index of the token that contains this byte.
  struct EncodingWithOffsets {
    std::vector<std::int32_t> ids;
    std::vector<std::size_t> token_at;
  };
  virtual EncodingWithOffsets encode_with_offsets(std::string_view text,
                                                  std::span<const std::size_t> bytes) const;
  // Ids outside the vocabulary are skipped.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
};

// One token per byte, so the vocabulary is 256. Encodes any file; the byte 0 is the end-of-text token.
std::unique_ptr<Tokenizer> byte_tokenizer();

// Reads a SentencePiece model file. With `begin` a text begins with its <s> token. `end_of_text` is a piece;
// "" = the one that the model file names. Throws Error when the file cannot be read or is no such model.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const std::string& path, bool begin = false,
                                                   const std::string& end_of_text = {});

}  // namespace meshloom::trainer
