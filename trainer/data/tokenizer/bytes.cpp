#include <algorithm>

#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {
namespace {

class Bytes : public Tokenizer {
 public:
  std::string name() const override { return "bytes"; }
  std::int64_t vocabulary() const override { return 256; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
    return ids;
  }
  void encode_to(std::string_view text, const EmitIds& emit) const override {
    for (constexpr std::size_t kBlock = 1 << 16; !text.empty();
         text.remove_prefix(std::min(kBlock, text.size())))
      emit(encode(text.substr(0, kBlock)));
  }
  std::optional<std::int32_t> end_of_text() const override { return 0; }
  std::string token(std::int32_t id) const override {
    return id >= 0 && id < 256 ? std::string(1, static_cast<char>(id)) : "";
  }
  std::optional<std::int32_t> find(std::string_view token) const override {
    if (token.size() != 1) return {};
    return static_cast<unsigned char>(token[0]);
  }
  bool is_added(std::int32_t id) const override { return id == 0; }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (std::int32_t id : ids)
      if (id >= 0 && id < 256) text += static_cast<char>(id);
    return text;
  }
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<Bytes>(); }

}  // namespace meshloom::trainer
