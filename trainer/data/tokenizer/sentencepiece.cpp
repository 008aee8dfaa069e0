#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "hal/error.h"
#include "trainer/data/tokenizer/sentencepiece_check.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

class SentencePiece : public Tokenizer {
 public:
  SentencePiece(const std::string& path, bool begin, const std::string& end_of_text) : path_(path) {
    const std::string where = "tokenizer '" + path + "'";
    const std::string model = read_file(path, where);
    check_sentencepiece_model(model, where);
    try {
      const auto status = processor_.LoadFromSerializedProto(model);
      if (!status.ok()) throw Error(where, "must be a SentencePiece model", status.ToString());
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(where, "must be a SentencePiece model", error.what());
    }
    if (processor_.GetPieceSize() <= 0) throw Error(where, "must hold at least one piece", "none");
    for (int id = 0; id < processor_.GetPieceSize(); ++id)
      if (processor_.IsControl(id) || processor_.IsUnknown(id))
        control_.push_back({processor_.IdToPiece(id), id});
    if (begin) {
      if (processor_.bos_id() < 0) throw Error(where, "begin_of_text needs a begin-of-text piece", "none");
      begin_ = {processor_.bos_id()};
    }
    if (const int id = processor_.eos_id(); id >= 0) end_ = id;
    if (end_of_text.empty()) return;
    end_ = find(end_of_text);
    if (!end_) throw Error(where, "end_of_text must be one of its pieces", shown(end_of_text));
  }

  std::string name() const override { return "sentencepiece " + path_; }
  std::int64_t vocabulary() const override { return processor_.GetPieceSize(); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids = begin_, part = encode_part(text);
    ids.insert(ids.end(), part.begin(), part.end());
    return ids;
  }
  std::vector<std::int32_t> begin_of_text() const override { return begin_; }
  std::vector<std::int32_t> encode_part(std::string_view text) const override {
    // The library counts characters and their positions in ints.
    if (text.size() > kMaxBytes)
      throw Error("tokenizer '" + path_ + "'",
                  "a text must have at most 2^30 bytes; cut the file into several",
                  std::to_string(text.size()));
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok())
      throw Error("tokenizer '" + path_ + "'", "could not encode the text", status.ToString());
    return {ids.begin(), ids.end()};
  }

  std::optional<std::int32_t> end_of_text() const override { return end_; }
  std::string token(std::int32_t id) const override {
    return id >= 0 && id < processor_.GetPieceSize() ? processor_.IdToPiece(id) : "";
  }
  std::optional<std::int32_t> find(std::string_view token) const override {
    const std::string piece(token);
    const int id = processor_.PieceToId(piece);
    return processor_.IdToPiece(id) == piece ? std::optional<std::int32_t>(id) : std::nullopt;
  }
  bool is_added(std::int32_t id) const override {
    return id >= 0 && id < processor_.GetPieceSize() && processor_.IsControl(id);
  }
  // The library never turns text into control symbols, so the text is cut at them here.
  EncodingWithOffsets encode_with_offsets(std::string_view text,
                                          std::span<const std::size_t> bytes) const override {
    EncodingWithOffsets encoding{{}, std::vector<std::size_t>(bytes.size())};
    const auto add = [&](std::size_t from, std::size_t to, std::optional<std::int32_t> symbol) {
      if (from == to) return;
      std::vector<std::size_t> inside;
      for (const std::size_t byte : bytes)
        if (byte >= from && byte < to) inside.push_back(byte - from);
      EncodingWithOffsets part = symbol
                                     ? EncodingWithOffsets{{*symbol}, std::vector<std::size_t>(inside.size())}
                                     : Tokenizer::encode_with_offsets(text.substr(from, to - from), inside);
      for (std::size_t i = 0, next = 0; i < bytes.size(); ++i)
        if (bytes[i] >= from && bytes[i] < to)
          encoding.token_at[i] = encoding.ids.size() + part.token_at[next++];
      encoding.ids.insert(encoding.ids.end(), part.ids.begin(), part.ids.end());
    };
    std::size_t from = 0;
    for (std::size_t at = 0; at < text.size();) {
      const auto found = std::find_if(control_.begin(), control_.end(), [&](const auto& symbol) {
        return !symbol.first.empty() && text.substr(at).starts_with(symbol.first);
      });
      if (found == control_.end()) {
        ++at;
        continue;
      }
      add(from, at, {});
      add(at, at + found->first.size(), found->second);
      from = at = at + found->first.size();
    }
    add(from, text.size(), {});
    return encoding;
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
  std::string path_;
  std::vector<std::int32_t> begin_;
  std::optional<std::int32_t> end_;
  std::vector<std::pair<std::string, std::int32_t>> control_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const std::string& path, bool begin,
                                                   const std::string& end_of_text) {
  return std::make_unique<SentencePiece>(path, begin, end_of_text);
}

}  // namespace meshloom::trainer
