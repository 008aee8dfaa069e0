// Sets of Unicode characters, as grammars over bytes have them: in UTF-8, or as they are written in JSON's strings.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/inference/grammar/grammar_builder.h"

namespace meshloom::trainer {

// Scalar values: surrogates are never members.
class CodePoints {
 public:
  using Range = std::pair<std::uint32_t, std::uint32_t>;  // inclusive
  static constexpr std::uint32_t kLast = 0x10ffff;

  CodePoints() = default;
  CodePoints(std::initializer_list<Range> ranges) : CodePoints(std::vector<Range>(ranges)) {}
  explicit CodePoints(std::vector<Range> ranges);
  static CodePoints all() { return {{0, kLast}}; }

  void add(const CodePoints& others);
  CodePoints complement() const;
  CodePoints without(const CodePoints& others) const;
  bool has(std::uint32_t character) const;
  bool empty() const { return ranges_.empty(); }
  // Rising, neither overlapping nor adjacent.
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// What a character becomes in the text.
enum class Spelling : std::uint8_t {
  utf8,
  json  // in a string of JSON: quotes, backslashes and control characters by their shortest escapes, others as UTF-8
};

// Appends one character of the set.
GrammarBuilder::State append_character(GrammarBuilder& builder, GrammarBuilder::State from,
                                       const CodePoints& set, Spelling spelling);

// The character at `at` of valid UTF-8, and moves `at` behind it.
std::uint32_t next_character(std::string_view text, std::size_t& at);

}  // namespace meshloom::trainer
