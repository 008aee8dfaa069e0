#include "layers/position/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace meshloom::layers {
namespace {

void check_factor(double factor, const std::string& path) {
  if (!(factor >= 1)) throw Error(display_path(path), "factor must be at least 1", std::to_string(factor));
}

void check_length(std::int64_t length, const std::string& path) {
  if (length <= 0)
    throw Error(display_path(path), "original_length must be positive", std::to_string(length));
}

}  // namespace

void LinearRotaryPosition::fields(FieldVisitor& v) {
  RotaryPosition::Config::fields(v);
  v("factor", factor,
    {"How many times slower every rotation is.", at_least(1),
     means("how many times longer sequences may be")});
}

void LinearRotaryPosition::adjust(kernels::RopeOptions& options, const std::string& path) const {
  check_factor(factor, path);
  options.scaling = kernels::RopeScaling{.factor = factor};
}

void NtkRotaryPosition::fields(FieldVisitor& v) {
  RotaryPosition::Config::fields(v);
  v("factor", factor,
    {"How many times slower the slowest rotation is.", at_least(1),
     means("how many times longer sequences may be")});
}

void NtkRotaryPosition::adjust(kernels::RopeOptions& options, const std::string& path) const {
  check_factor(factor, path);
  if (options.dims < 4)
    throw Error(display_path(path), "must rotate at least 4 features", std::to_string(options.dims));
  const auto dims = static_cast<double>(options.dims);
  options.theta *= std::pow(factor, dims / (dims - 2));
}

void Llama3RotaryPosition::fields(FieldVisitor& v) {
  RotaryPosition::Config::fields(v);
  v("factor", factor,
    {"How many times slower the slow rotations are.", at_least(1),
     means("how many times longer sequences may be")});
  v("low_frequency_factor", low_frequency_factor,
    {"Rotations of fewer turns than this in original_length positions are slower by the whole factor.",
     above(0)});
  v("high_frequency_factor", high_frequency_factor,
    {"Rotations of more turns than this in original_length positions do not change.", above(0)});
  v("original_length", original_length,
    {"The sequence length that the model was first trained with, in tokens.", at_least(1),
     means("sequence length learned first")});
}

void Llama3RotaryPosition::adjust(kernels::RopeOptions& options, const std::string& path) const {
  check_factor(factor, path);
  check_length(original_length, path);
  const double low = low_frequency_factor, high = high_frequency_factor;
  if (!(low > 0 && high > low))
    throw Error(display_path(path), "must have 0 < low_frequency_factor < high_frequency_factor",
                std::to_string(low) + " and " + std::to_string(high));
  const double turns =
      static_cast<double>(original_length) / (2 * std::numbers::pi);  // per radian per position
  options.scaling = kernels::RopeScaling{factor, turns / (high - low), 0, -low / (high - low)};
}

void YarnRotaryPosition::fields(FieldVisitor& v) {
  RotaryPosition::Config::fields(v);
  v("factor", factor,
    {"How many times slower the slow rotations are.", at_least(1),
     means("how many times longer sequences may be")});
  v("original_length", original_length,
    {"The sequence length that the model was first trained with, in tokens.", at_least(1),
     means("sequence length learned first")});
  v("beta_fast", beta_fast,
    {"Pairs of more turns than this in original_length positions do not change.", above(0)});
  v("beta_slow", beta_slow,
    {"Pairs of fewer turns than this in original_length positions are slower by the whole factor.",
     above(0)});
  v("truncate", truncate,
    {"Whether the ends of the ramp between the two are truncated to whole pairs.", formerly("whole_pairs")});
  v("attention_factor", attention_factor,
    {"Factor on queries and keys; none: 1 + 0.1 ln(factor).", above(0)});
}

void YarnRotaryPosition::adjust(kernels::RopeOptions& options, const std::string& path) const {
  check_factor(factor, path);
  check_length(original_length, path);
  if (!(options.theta > 1))
    throw Error(display_path(path), "theta must be above 1", std::to_string(options.theta));
  if (!(beta_slow > 0 && beta_fast > beta_slow))
    throw Error(display_path(path), "must have 0 < beta_slow < beta_fast",
                std::to_string(beta_slow) + " and " + std::to_string(beta_fast));
  if (attention_factor && !(*attention_factor > 0))
    throw Error(display_path(path), "attention_factor must be positive", std::to_string(*attention_factor));
  const auto dims = static_cast<double>(options.dims), length = static_cast<double>(original_length.get());
  // The index of the pair, as a fraction, that makes this many turns in original_length positions.
  const auto pair_of = [&](double turns) {
    return dims * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(options.theta));
  };
  double begin = pair_of(beta_fast), end = pair_of(beta_slow);
  if (truncate) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(begin, 0.0);
  end = std::min(end, dims - 1);  // as published: the last feature, and not the last pair
  const double width = begin == end ? 1e-3 : end - begin;
  options.scaling = kernels::RopeScaling{factor, 0, -1 / width, 1 + begin / width};
  options.magnitude = attention_factor.value_or(1 + 0.1 * std::log(factor));
}

void add_rope_scaling_classes(ClassTable& classes) {
  classes.add<LinearRotaryPosition>();
  classes.add<NtkRotaryPosition>();
  classes.add<Llama3RotaryPosition>();
  classes.add<YarnRotaryPosition>();
}

}  // namespace meshloom::layers
