#include "layers/position/long_rope.h"

#include <cmath>

namespace meshloom::layers {

void LongRotaryPosition::fields(FieldVisitor& v) {
  RotaryPosition::Config::fields(v);
  v("short_factors", short_factors,
    {"How many times slower each pair rotates in texts of up to original_length tokens, \"1 1.25\"."});
  v("long_factors", long_factors, {"How many times slower each pair rotates in longer texts."});
  v("original_length", original_length,
    {"The sequence length that the model was first trained with, in tokens.", at_least(1),
     means("sequence length learned first")});
  v("attention_factor", attention_factor, {"Factor on rotated features of queries and keys.", above(0)});
  v("long_texts", long_texts,
    {"Whether all texts have the long factors; else the short ones, and sequences that are longer than "
     "original_length are refused."});
}

void LongRotaryPosition::adjust(kernels::RopeOptions& options, const std::string& path) const {
  const auto factors = [&](const char* name, const std::string& text) {
    std::vector<double> numbers;
    try {
      numbers = kernels::parse_rope_factors(text);
    } catch (const Error& error) {
      throw Error(display_path(path) + ", " + name, error.rule(), error.found());
    }
    for (const double number : numbers)
      if (!std::isfinite(number) || number <= 0)
        throw Error(display_path(path) + ", " + name, "must be numbers above 0", std::to_string(number));
    if (numbers.size() != static_cast<std::size_t>(options.dims / 2))
      throw Error(display_path(path) + ", " + name,
                  "must have one number for each of " + std::to_string(options.dims / 2) + " pairs",
                  std::to_string(numbers.size()));
    return numbers;
  };
  const std::vector<double> in_short = factors("short_factors", short_factors),
                            in_long = factors("long_factors", long_factors);
  if (original_length <= 0)
    throw Error(display_path(path), "original_length must be positive",
                std::to_string(original_length.get()));
  if (!(attention_factor > 0))
    throw Error(display_path(path), "attention_factor must be positive", std::to_string(attention_factor));
  options.factors = long_texts ? in_long : in_short;
  options.magnitude = attention_factor;
}

std::int64_t LongRotaryPosition::max_sequence() const {
  return long_texts || short_factors.get() == long_factors.get() ? 0 : original_length.get();
}

void add_long_rope_classes(ClassTable& classes) { classes.add<LongRotaryPosition>(); }

}  // namespace meshloom::layers
