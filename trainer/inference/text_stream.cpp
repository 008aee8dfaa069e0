#include "trainer/inference/text_stream.h"

#include <algorithm>
#include <utility>

namespace meshloom::trainer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr std::size_t kLongest = 32, kKept = 8;  // tokens of a window, and after it was shortened
constexpr std::size_t kContext = 16;             // tokens before the text that are decoded with it

// The bytes that follow the first one of a character, and the range of the first of them; 0 = no character begins so.
struct Lead {
  std::size_t more;
  unsigned char low, high;
};
Lead lead_of(unsigned char byte) {
  if (byte < 0xc2 || byte > 0xf4) return {0, 0, 0};
  if (byte < 0xe0) return {1, 0x80, 0xbf};
  if (byte < 0xf0)
    return {2, byte == 0xe0 ? static_cast<unsigned char>(0xa0) : static_cast<unsigned char>(0x80),
            byte == 0xed ? static_cast<unsigned char>(0x9f) : static_cast<unsigned char>(0xbf)};
  return {3, byte == 0xf0 ? static_cast<unsigned char>(0x90) : static_cast<unsigned char>(0x80),
          byte == 0xf4 ? static_cast<unsigned char>(0x8f) : static_cast<unsigned char>(0xbf)};
}

// SentencePiece decodes the bytes of an incomplete character to as many U+FFFD, which a further byte may change.
std::size_t without_replacements(std::string_view text) {
  for (int i = 0; i < 3 && text.ends_with(kReplacement); ++i) text.remove_suffix(kReplacement.size());
  return text.size();
}

std::size_t common_front(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())),
                    b.begin())
          .first -
      a.begin());
}

}  // namespace

std::size_t append_utf8(std::string_view bytes, std::string& text) {
  while (!bytes.empty()) {
    const auto byte = static_cast<unsigned char>(bytes[0]);
    const Lead lead = lead_of(byte);
    std::size_t size = 1;
    while (size <= lead.more && size < bytes.size()) {
      const auto next = static_cast<unsigned char>(bytes[size]);
      if (next < (size == 1 ? lead.low : 0x80) || next > (size == 1 ? lead.high : 0xbf)) break;
      ++size;
    }
    if (size == bytes.size() && size <= lead.more) return size;
    if (byte < 0x80 || (lead.more > 0 && size == lead.more + 1))
      text += bytes.substr(0, size);
    else
      text += kReplacement;
    bytes.remove_prefix(size);
  }
  return 0;
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

StopStrings::StopStrings(const std::vector<std::string>& stops) {
  for (const std::string& text : stops) {
    Stop stop{text, std::vector<std::size_t>(text.size() + 1, 0)};
    for (std::size_t i = 1, k = 0; i < text.size(); ++i) {
      while (k > 0 && text[i] != text[k]) k = stop.shorter[k];
      if (text[i] == text[k]) ++k;
      stop.shorter[i + 1] = k;
    }
    stops_.push_back(std::move(stop));
  }
}

std::size_t StopStrings::add(std::string_view part) {
  if (found_) return final_;
  std::size_t begun = 0;
  for (Stop& stop : stops_) begun = std::max(begun, stop.matched);
  for (const char c : part) {
    ++seen_;
    begun = 0;
    for (Stop& stop : stops_) {
      while (stop.matched > 0 && stop.text[stop.matched] != c) stop.matched = stop.shorter[stop.matched];
      if (stop.text[stop.matched] == c) ++stop.matched;
      begun = std::max(begun, stop.matched);
      found_ = found_ || stop.matched == stop.text.size();
    }
    if (!found_) continue;
    std::size_t longest = 0;
    for (const Stop& stop : stops_)
      if (stop.matched == stop.text.size()) longest = std::max(longest, stop.matched);
    return final_ = std::max(final_, seen_ - longest);
  }
  return final_ = std::max(final_, seen_ - begun);
}

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> context,
                       const std::vector<std::string>& stops)
    : tokenizer_(tokenizer), longest_(kLongest), stops_(stops) {
  // Of tokens without text further ones are needed, since the beginning of a text can lose its space.
  for (std::size_t count = std::min(kContext, context.size());; count = std::min(2 * count, context.size())) {
    const auto last = context.last(count);
    window_text_ = tokenizer.decode(last);
    if (window_text_.empty() && count < context.size()) continue;
    window_.assign(last.begin(), last.end());
    break;
  }
  context_text_ = window_text_;
  done_ = window_text_.size();
  longest_ = std::max(longest_, 2 * window_.size());
}

std::string TextStream::add(std::int32_t id) {
  if (stopped()) return {};
  const bool again = !window_.empty() && window_.back() == id;
  window_.push_back(id);
  std::string text = tokenizer_.decode(window_);
  // A token without text changes nothing a second time; so windows of such tokens stay short.
  if (again && text == window_text_) {
    window_.pop_back();
    return {};
  }
  if (!context_text_.empty()) {  // a context can end within a character
    if (!text.starts_with(context_text_)) done_ = std::min(done_, common_front(text, context_text_));
    if (text.size() > context_text_.size()) context_text_.clear();
  }
  const std::size_t certain = std::max(without_replacements(text), std::min(done_, text.size()));
  const std::string more = certain > done_ ? text.substr(done_, certain - done_) : std::string();
  done_ = std::max(done_, certain);
  window_text_ = std::move(text);
  if (window_.size() > longest_) shorten(window_text_);
  return pass(more);
}

// The last tokens are enough when they show the same end, and more than what is yet to be passed on.
void TextStream::shorten(const std::string& text) {
  const std::vector<std::int32_t> last(window_.end() - static_cast<std::ptrdiff_t>(kKept), window_.end());
  std::string shorter = tokenizer_.decode(last);
  const std::size_t open = text.size() - std::min(done_, text.size());
  const std::size_t same = static_cast<std::size_t>(
      std::mismatch(shorter.rbegin(),
                    shorter.rbegin() + static_cast<std::ptrdiff_t>(std::min(shorter.size(), text.size())),
                    text.rbegin())
          .first -
      shorter.rbegin());
  if (done_ > text.size() || same <= open) {
    longest_ *= 2;
    return;
  }
  window_ = last;
  done_ = shorter.size() - open;
  window_text_ = std::move(shorter);
  context_text_.clear();
  longest_ = kLongest;
}

std::string TextStream::pass(std::string_view bytes) {
  bytes_ += bytes;
  std::string text;
  const std::size_t left = append_utf8(bytes_, text);
  bytes_.erase(0, bytes_.size() - left);
  characters_ += count_characters(text);
  const std::size_t before = given_;
  given_ = stops_.add(text);
  held_ += text;
  std::string out = held_.substr(0, given_ - before);
  held_.erase(0, given_ - before);
  return out;
}

std::int64_t TextStream::characters() const {
  const bool incomplete = !bytes_.empty() || window_text_.size() > done_;
  return characters_ + (incomplete ? 1 : 0);
}

std::string TextStream::finish() {
  if (stopped()) return {};
  std::string out;
  if (window_text_.size() > done_) out = pass(std::string_view(window_text_).substr(done_));
  done_ = window_text_.size();
  if (!bytes_.empty() && !stopped()) {
    bytes_.clear();
    out += pass(kReplacement);
  }
  if (!stopped()) out += std::exchange(held_, {});
  return out;
}

}  // namespace meshloom::trainer
