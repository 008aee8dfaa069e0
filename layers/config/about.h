// The description of a field, given where the field is declared: a sentence, the values that are allowed, and what the
// value means.
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

// The values that a field may have; for a list, those of each item. A field that is none is always allowed.
struct Range {
  static constexpr std::size_t kMaxChoices = 8;

  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool exclusive_min = false, exclusive_max = false;  // whether `min` and `max` themselves are not allowed
  std::int64_t multiple_of = 1;
  std::array<std::string_view, kMaxChoices> choices = {};  // the only values that a string may have
  std::size_t choice_count = 0;                            // 0 = any string

  bool any() const;  // whether every value is allowed
  bool has(double value) const;
  bool has(std::string_view value) const;
  std::string to_string() const;  // "at least 0 and below 1", "half or interleaved"; "" = any
};

constexpr Range at_least(double min) { return {.min = min}; }
constexpr Range above(double min) { return {.min = min, .exclusive_min = true}; }
constexpr Range between(double min, double max) { return {.min = min, .max = max}; }
// [0, 1), the range of decay factors and dropout rates.
constexpr Range below_one() { return {.min = 0, .max = 1, .exclusive_max = true}; }
constexpr Range positive_multiple_of(std::int64_t factor) {
  return {.min = static_cast<double>(factor), .multiple_of = factor};
}
template <typename... Choices>
constexpr Range one_of(Choices... choices) {
  static_assert(sizeof...(choices) <= Range::kMaxChoices);
  return {.choices = {std::string_view(choices)...}, .choice_count = sizeof...(choices)};
}

// Two classes may declare fields of one name that stand for different things. replace() keeps the value of such a field
// only if both fields have the same meaning. The meaning of a field without one is its sentence, so that a field which a
// common base declares is kept.
struct Meaning {
  std::string_view text;
};
constexpr Meaning means(std::string_view text) { return {text}; }

// The name that the field had in older recipes and checkpoints, which can still be read. (Former names of classes are in
// the ClassTable.) Where the field is a child now and was a value, that is the value of the child's field of the former name.
struct FormerFieldName {
  std::string_view name;
};
constexpr FormerFieldName formerly(std::string_view name) { return {name}; }

// A value of a string field that older recipes write in another way.
struct FormerValue {
  std::string_view before, now;
};
constexpr FormerValue former_value(std::string_view before, std::string_view now) { return {before, now}; }

class About {
 public:
  constexpr About() = default;
  static constexpr std::size_t kMaxFormerValues = 2;

  // A whole sentence; then, in any order, a Range, a Meaning, a FormerFieldName and FormerValues.
  template <typename... More>
  constexpr About(const char* sentence, const More&... more) : sentence_(sentence) {
    (add(more), ...);
  }

  constexpr std::string_view sentence() const { return sentence_; }
  constexpr const Range& range() const { return range_; }
  constexpr std::string_view meaning() const { return meaning_.empty() ? sentence_ : meaning_; }
  constexpr std::string_view former_name() const { return former_name_; }
  // `value` itself unless it is a former one.
  constexpr std::string_view current_value(std::string_view value) const {
    for (const FormerValue& former : former_values_)
      if (!former.before.empty() && former.before == value) return former.now;
    return value;
  }

 private:
  constexpr void add(const Range& range) { range_ = range; }
  constexpr void add(const Meaning& meaning) { meaning_ = meaning.text; }
  constexpr void add(const FormerFieldName& former) { former_name_ = former.name; }
  constexpr void add(const FormerValue& former) {
    std::size_t used = 0;
    while (!former_values_.at(used).before.empty()) ++used;
    former_values_.at(used) = former;
  }

  std::string_view sentence_, meaning_, former_name_;
  Range range_;
  std::array<FormerValue, kMaxFormerValues> former_values_ = {};
};

}  // namespace meshloom::layers
