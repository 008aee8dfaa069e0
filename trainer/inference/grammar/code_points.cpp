#include "trainer/inference/grammar/code_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace meshloom::trainer {
namespace {

using GrammarState = GrammarBuilder::State;
constexpr std::uint32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;

std::size_t utf8_of(std::uint32_t c, std::array<unsigned char, 4>& bytes) {
  if (c < 0x80) {
    bytes[0] = static_cast<unsigned char>(c);
    return 1;
  }
  const std::size_t size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (std::size_t i = size - 1; i > 0; --i, c >>= 6)
    bytes[i] = static_cast<unsigned char>(0x80 | (c & 0x3f));
  bytes[0] = static_cast<unsigned char>((size == 2 ? 0xc0 : size == 3 ? 0xe0 : 0xf0) | c);
  return size;
}

// The characters of a range whose sequences have the same number of bytes and, but for the last `more` ones, are the same or
// of whole blocks: cut until each byte has a range of its own.
void add_utf8_range(GrammarBuilder& builder, GrammarState from, GrammarState to, std::uint32_t first,
                    std::uint32_t last) {
  for (const std::uint32_t end : {0x7fu, 0x7ffu, 0xffffu})
    if (first <= end && last > end) {
      add_utf8_range(builder, from, to, first, end);
      return add_utf8_range(builder, from, to, end + 1, last);
    }
  for (int more = 1; more < 4 && last >= 0x80; ++more) {
    const std::uint32_t block = (1u << (6 * more)) - 1;
    if ((first & ~block) == (last & ~block)) break;
    if ((first & block) != 0) {
      add_utf8_range(builder, from, to, first, first | block);
      return add_utf8_range(builder, from, to, (first | block) + 1, last);
    }
    if ((last & block) != block) {
      add_utf8_range(builder, from, to, first, (last & ~block) - 1);
      return add_utf8_range(builder, from, to, last & ~block, last);
    }
  }
  std::array<unsigned char, 4> low{}, high{};
  const std::size_t size = utf8_of(first, low);
  utf8_of(last, high);
  for (std::size_t i = 0; i < size; ++i) {
    const GrammarState next = i + 1 == size ? to : builder.add_state();
    builder.bytes(from, next, low[i], high[i]);
    from = next;
  }
}

}  // namespace

CodePoints::CodePoints(std::vector<Range> ranges) {
  for (std::size_t i = 0, given = ranges.size(); i < given; ++i) {
    Range& range = ranges[i];
    if (range.first > kLastSurrogate || range.second < kFirstSurrogate) continue;
    const Range above{kLastSurrogate + 1, range.second};
    range.second = kFirstSurrogate - 1;
    ranges.push_back(above);
  }
  std::erase_if(ranges, [](const Range& range) { return range.first > range.second; });
  std::sort(ranges.begin(), ranges.end());
  for (const Range& range : ranges)
    if (!ranges_.empty() && range.first <= ranges_.back().second + 1)
      ranges_.back().second = std::max(ranges_.back().second, range.second);
    else
      ranges_.push_back(range);
}

void CodePoints::add(const CodePoints& others) {
  std::vector<Range> both = ranges_;
  both.insert(both.end(), others.ranges_.begin(), others.ranges_.end());
  *this = CodePoints(std::move(both));
}

CodePoints CodePoints::complement() const {
  std::vector<Range> rest;
  std::uint32_t from = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > from) rest.emplace_back(from, first - 1);
    from = last + 1;
  }
  if (from <= kLast) rest.emplace_back(from, kLast);
  return CodePoints(std::move(rest));
}

CodePoints CodePoints::without(const CodePoints& others) const {
  CodePoints sum = complement();
  sum.add(others);
  return sum.complement();
}

bool CodePoints::has(std::uint32_t character) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return character >= range.first && character <= range.second;
  });
}

GrammarBuilder::State append_character(GrammarBuilder& builder, GrammarState from, const CodePoints& set,
                                       Spelling spelling) {
  const GrammarState to = builder.add_state();
  CodePoints plain = set;
  if (spelling == Spelling::json) {
    static const CodePoints kEscaped{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    plain = set.without(kEscaped);
    for (std::uint32_t c = 0; c <= '\\'; ++c) {
      if (!kEscaped.has(c) || !set.has(c)) continue;
      static constexpr std::string_view kShort = "\b\f\n\r\t\"\\", kLetters = "bfnrt\"\\";
      const std::size_t at = kShort.find(static_cast<char>(c));
      const std::string text =
          at != std::string_view::npos ? std::string("\\") + kLetters[at] : fmt::format("\\u{:04x}", c);
      builder.empty(builder.literal(from, text), to);
    }
  }
  for (const auto& [first, last] : plain.ranges()) add_utf8_range(builder, from, to, first, last);
  return to;
}

std::uint32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t lead = byte(at);
  const std::size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  std::uint32_t c = size == 1 ? lead : lead & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) c = c << 6 | (byte(at + i) & 0x3f);
  at += size;
  return c;
}

}  // namespace meshloom::trainer
