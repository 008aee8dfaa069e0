#include <sentencepiece_processor.h>

#include "hal/error.h"
#include "trainer/input/file.h"
#include "trainer/input/tokenizer.h"

namespace meshloom::trainer {
namespace {

class SentencePiece : public Tokenizer {
 public:
  explicit SentencePiece(const std::string& path) : path_(path) {
    const std::string where = "tokenizer '" + path + "'";
    const std::string model = read_file(path, where);
    // The library logs to stderr and takes an empty model for a valid one: both are caught here.
    if (model.empty()) throw Error(where, "must be a SentencePiece model", "an empty file");
    if (!plausible(model))
      throw Error(where, "must be a SentencePiece model (a ModelProto)", "a file of another format");
    try {
      const auto status = processor_.LoadFromSerializedProto(model);
      if (!status.ok()) throw Error(where, "must be a SentencePiece model", status.ToString());
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(where, "must be a SentencePiece model", error.what());
    }
    if (processor_.GetPieceSize() <= 0) throw Error(where, "must hold at least one piece", "none");
  }

  std::string name() const override { return "sentencepiece " + path_; }
  std::int64_t vocabulary() const override { return processor_.GetPieceSize(); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) throw Error("tokenizer '" + path_ + "'", "could not encode the text", status.ToString());
    return {ids.begin(), ids.end()};
  }

  std::optional<std::int32_t> end_of_text() const override {
    const int id = processor_.eos_id();
    return id >= 0 ? std::optional<std::int32_t>(id) : std::nullopt;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::vector<int> known;
    for (std::int32_t id : ids)
      if (id >= 0 && id < processor_.GetPieceSize()) known.push_back(id);
    std::string text;
    const auto status = processor_.Decode(known, &text);
    if (!status.ok()) throw Error("tokenizer '" + path_ + "'", "could not decode", status.ToString());
    return text;
  }

 private:
  // Walks the top-level protobuf fields: a ModelProto is repeated pieces (field 1) and a few messages with
  // small numbers, each length-delimited and within the file. Refuses what the library aborts on.
  static bool plausible(const std::string& model) {
    std::size_t at = 0;
    bool pieces = false;
    const auto varint = [&](std::uint64_t& value) {
      value = 0;
      for (int shift = 0; shift < 64 && at < model.size(); shift += 7) {
        const auto byte = static_cast<unsigned char>(model[at++]);
        value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
      }
      return false;
    };
    while (at < model.size()) {
      std::uint64_t key = 0, length = 0;
      if (!varint(key) || (key & 7) != 2 || !varint(length) || length > model.size() - at) return false;
      pieces |= key >> 3 == 1;
      at += length;
    }
    return pieces;
  }

  std::string path_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const std::string& path) {
  return std::make_unique<SentencePiece>(path);
}

}  // namespace meshloom::trainer
