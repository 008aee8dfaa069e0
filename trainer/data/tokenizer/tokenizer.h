// Text to token ids and back.
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
  // The same ids some at a time, in order: a long text needs no room for all of them.
  using EmitIds = std::function<void(std::span<const std::int32_t>)>;
  virtual void encode_to(std::string_view text, const EmitIds& take) const { take(encode(text)); }
  // The text alone, and what encode() puts in front of a text.
  virtual std::vector<std::int32_t> encode_part(std::string_view text) const { return encode(text); }
  virtual std::vector<std::int32_t> begin_of_text() const { return {}; }
  // The token that says a text is over, which training writes behind documents and answers; none where the vocabulary has
  // no such.
  virtual std::optional<std::int32_t> end_of_text() const { return {}; }
  // Whether nothing but that token's name says that it is the end: the user is to be told.
  virtual bool end_is_guessed() const { return false; }
  // A token as the vocabulary has it ("<|im_end|>"), "" for an id that is none; and the id of such a text.
  virtual std::string token(std::int32_t id) const { return decode({&id, 1}); }
  virtual std::optional<std::int32_t> find(std::string_view /*token*/) const { return {}; }
  // Whether it is found in a text before the text is cut into words: special tokens and others that were added.
  virtual bool is_added(std::int32_t /*id*/) const { return false; }
  // Ids of a text in which special tokens stand as text, without what encode() puts around it; and for each of `bytes`,
  // which are places in the text, the index of the token that holds this byte.
  struct Placed {
    std::vector<std::int32_t> ids;
    std::vector<std::size_t> at;
  };
  virtual Placed encode_with_offsets(std::string_view text, std::span<const std::size_t> bytes) const;
  // Ids outside the vocabulary are left out.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
};

// One token per byte; vocabulary 256. Takes any file; the byte 0 ends a text.
std::unique_ptr<Tokenizer> byte_tokenizer();

// Reads a SentencePiece model file. With `begin` a text begins with its <s> token. `end_of_text` is a piece; "" = the one
// that the model file calls so. Throws Error when it cannot be read or is not such a model.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const std::string& path, bool begin = false,
                                                   const std::string& end_of_text = {});

}  // namespace meshloom::trainer
