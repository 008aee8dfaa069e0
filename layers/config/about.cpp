#include "layers/config/about.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace meshloom::layers {
namespace {

// "0.1", "1e6"
std::string number(double value) {
  char buffer[64];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  const std::size_t exponent = text.find('e');
  if (exponent == std::string::npos) return text;
  const bool small = text[exponent + 1] == '-';
  const std::size_t digits = text.find_first_not_of('0', exponent + 2);
  return text.substr(0, exponent) + (small ? "e-" : "e") + text.substr(digits);
}

std::string quoted_if_empty(std::string_view name) { return name.empty() ? "\"\"" : std::string(name); }

}  // namespace

bool Range::any() const {
  return choice_count == 0 && multiple_of == 1 && std::isinf(min) && std::isinf(max);
}

// The comparisons are written so that a NaN is only allowed where every value is.
bool Range::has(double value) const {
  if (any()) return true;
  const bool low = exclusive_min ? value > min : value >= min;
  const bool high = exclusive_max ? value < max : value <= max;
  return low && high && (multiple_of == 1 || std::fmod(value, static_cast<double>(multiple_of)) == 0);
}

bool Range::has(std::string_view value) const {
  return choice_count == 0 ||
         std::find(choices.begin(), choices.begin() + choice_count, value) != choices.begin() + choice_count;
}

std::string Range::to_string() const {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : " and ") + more; };
  for (std::size_t i = 0; i < choice_count; ++i)
    text += (i == 0 ? "" : i + 1 == choice_count ? " or " : ", ") + quoted_if_empty(choices[i]);
  if (multiple_of != 1) add("a multiple of " + number(static_cast<double>(multiple_of)));
  if (!std::isinf(min)) add((exclusive_min ? "above " : "at least ") + number(min));
  if (!std::isinf(max)) add((exclusive_max ? "below " : "at most ") + number(max));
  return text;
}

}  // namespace meshloom::layers
