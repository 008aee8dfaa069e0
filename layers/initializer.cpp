#include "layers/initializer.h"

#include <algorithm>
#include <cmath>

namespace meshloom::layers {
namespace {

void fill_normal(const InitArgs& args, double std, float* into) {
  const std::int64_t count = kernels::elements(args.shape);
  normal(args.key, 0, count, into);
  for (std::int64_t i = 0; i < count; ++i) into[i] *= static_cast<float>(std);
}

}  // namespace

void Constant::fill(const InitArgs& args, float* into) const {
  std::fill_n(into, kernels::elements(args.shape), static_cast<float>(value));
}

void Normal::fill(const InitArgs& args, float* into) const { fill_normal(args, std, into); }

void DepthScaledNormal::fill(const InitArgs& args, float* into) const {
  fill_normal(args, std / std::sqrt(2.0 * static_cast<double>(args.depth)), into);
}

void FanInNormal::fill(const InitArgs& args, float* into) const {
  fill_normal(args, gain / std::sqrt(static_cast<double>(args.fan_in())), into);
}

void TruncatedNormal::fill(const InitArgs& args, float* into) const {
  if (!(cut >= 0.1)) throw Error("TruncatedNormal", "cut must be at least 0.1", std::to_string(cut));
  const std::int64_t count = kernels::elements(args.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    double z = 0;
    std::uint64_t attempt = 0;
    do {  // every element has a sequence of its own, so a redraw moves nobody else
      const auto index = static_cast<std::uint64_t>(i);
      const double radius = std::sqrt(-2.0 * std::log(uniform(args.key, index, 2 * attempt)));
      z = radius * std::cos(6.283185307179586 * uniform(args.key, index, 2 * attempt + 1));
      ++attempt;
    } while (std::abs(z) > cut);
    into[i] = static_cast<float>(z * std);
  }
}

void add_initializer_classes(ClassTable& classes) {
  classes.add<Constant>();
  classes.add<Normal>();
  classes.add<DepthScaledNormal>();
  classes.add<FanInNormal>();
  classes.add<TruncatedNormal>();
}

}  // namespace meshloom::layers
