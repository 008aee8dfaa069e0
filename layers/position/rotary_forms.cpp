#include "layers/position/rotary_forms.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace meshloom::layers {
namespace {

void check_factor(double factor, const std::string& path) {
  if (!(factor >= 1)) throw Error(shown(path), "factor is at least 1", std::to_string(factor));
}

void check_length(std::int64_t length, const std::string& path) {
  if (length <= 0) throw Error(shown(path), "original_length is positive", std::to_string(length));
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
  if (options.dims < 4) throw Error(shown(path), "rotates at least 4 features", std::to_string(options.dims));
  const auto dims = static_cast<double>(options.dims);
  options.theta *= std::pow(factor, dims / (dims - 2));
}

void ScaledRotaryPosition::fields(FieldVisitor& v) {
  RotaryPosition::Config::fields(v);
  v("factor", factor,
    {"How many times slower the slow rotations are.", at_least(1),
     means("how many times longer sequences may be")});
  v("low_frequency_factor", low_frequency_factor,
    {"Rotations of fewer turns than this in original_length positions are slowed in full.", above(0)});
  v("high_frequency_factor", high_frequency_factor,
    {"Rotations of more turns than this in original_length positions stay.", above(0)});
  v("original_length", original_length,
    {"The sequence length that the model first learned, in tokens.", at_least(1),
     means("sequence length learned first")});
}

void ScaledRotaryPosition::adjust(kernels::RopeOptions& options, const std::string& path) const {
  check_factor(factor, path);
  check_length(original_length, path);
  const double low = low_frequency_factor, high = high_frequency_factor;
  if (!(low > 0 && high > low))
    throw Error(shown(path), "0 < low_frequency_factor < high_frequency_factor",
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
    {"The sequence length that the model first learned, in tokens.", at_least(1),
     means("sequence length learned first")});
  v("beta_fast", beta_fast, {"Pairs of more turns than this in original_length positions stay.", above(0)});
  v("beta_slow", beta_slow,
    {"Pairs of fewer turns than this in original_length positions are slowed in full.", above(0)});
  v("whole_pairs", whole_pairs, {"Whether the ramp between the two begins and ends at a pair."});
  v("attention_factor", attention_factor,
    {"Factor on queries and keys; none: 1 + 0.1 ln(factor).", above(0)});
}

void YarnRotaryPosition::adjust(kernels::RopeOptions& options, const std::string& path) const {
  check_factor(factor, path);
  check_length(original_length, path);
  if (!(options.theta > 1)) throw Error(shown(path), "theta is above 1", std::to_string(options.theta));
  if (!(beta_slow > 0 && beta_fast > beta_slow))
    throw Error(shown(path), "0 < beta_slow < beta_fast",
                std::to_string(beta_slow) + " and " + std::to_string(beta_fast));
  if (attention_factor && !(*attention_factor > 0))
    throw Error(shown(path), "attention_factor is positive", std::to_string(*attention_factor));
  const auto dims = static_cast<double>(options.dims), length = static_cast<double>(original_length.get());
  // The pair, as a fraction, that makes so many turns in original_length positions.
  const auto pair_of = [&](double turns) {
    return dims * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(options.theta));
  };
  double begin = pair_of(beta_fast), end = pair_of(beta_slow);
  if (whole_pairs) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(begin, 0.0);
  end = std::min(end, dims - 1);  // the last feature, not the last pair: as it was published
  const double width = begin == end ? 1e-3 : end - begin;
  options.scaling = kernels::RopeScaling{factor, 0, -1 / width, 1 + begin / width};
  options.magnitude = attention_factor.value_or(1 + 0.1 * std::log(factor));
}

void add_rotary_forms_classes(ClassTable& classes) {
  classes.add<LinearRotaryPosition>();
  classes.add<NtkRotaryPosition>();
  classes.add<ScaledRotaryPosition>();
  classes.add<YarnRotaryPosition>();
}

}  // namespace meshloom::layers
