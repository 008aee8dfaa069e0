// What is said of a field where it is declared: a sentence, the values it takes, and what it means.
//
//   v("eps", eps, {"Added to the mean square before the root is taken.", above(0), means("added to a variance")});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace meshloom::layers {

// The values that a field takes; of a list each item. A field that is none is within any range.
struct Range {
  static constexpr std::size_t kMaxNames = 8;

  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open_below = false, open_above = false;  // `least`, `most` are not among the values
  std::int64_t multiple_of = 1;
  std::array<std::string_view, kMaxNames> names = {};  // of strings: the only ones
  std::size_t name_count = 0;

  bool any() const;  // takes every value
  bool has(double value) const;
  bool has(std::string_view value) const;
  std::string to_string() const;  // "at least 0 and below 1", "half or interleaved"; "" = any
};

constexpr Range at_least(double least) { return {.least = least}; }
constexpr Range above(double least) { return {.least = least, .open_below = true}; }
constexpr Range between(double least, double most) { return {.least = least, .most = most}; }
// [0, 1): what a decay or a rate of dropping may be.
constexpr Range below_one() { return {.least = 0, .most = 1, .open_above = true}; }
constexpr Range positive_multiple_of(std::int64_t factor) {
  return {.least = static_cast<double>(factor), .multiple_of = factor};
}
template <typename... Names>
constexpr Range one_of(Names... names) {
  static_assert(sizeof...(names) <= Range::kMaxNames);
  return {.names = {std::string_view(names)...}, .name_count = sizeof...(names)};
}

// What the value stands for, where classes of their own declare a field of one name: replace() keeps the value of a
// field only where the two mean the same. A field without this means what its sentence says, so that a field declared
// once, by a common base, is kept.
struct Meaning {
  std::string_view text;
};
constexpr Meaning means(std::string_view text) { return {text}; }

// The field's name in older recipes and checkpoints, which goes on being read.
struct FormerName {
  std::string_view name;
};
constexpr FormerName formerly(std::string_view name) { return {name}; }

class About {
 public:
  constexpr About() = default;
  // A whole sentence, then in any order a Range, a Meaning, a FormerName.
  template <typename... More>
  constexpr About(const char* sentence, const More&... more) : sentence_(sentence) {
    (add(more), ...);
  }

  constexpr std::string_view sentence() const { return sentence_; }
  constexpr const Range& range() const { return range_; }
  constexpr std::string_view meaning() const { return meaning_.empty() ? sentence_ : meaning_; }
  constexpr std::string_view former_name() const { return former_name_; }

 private:
  constexpr void add(const Range& range) { range_ = range; }
  constexpr void add(const Meaning& meaning) { meaning_ = meaning.text; }
  constexpr void add(const FormerName& former) { former_name_ = former.name; }

  std::string_view sentence_, meaning_, former_name_;
  Range range_;
};

}  // namespace meshloom::layers
