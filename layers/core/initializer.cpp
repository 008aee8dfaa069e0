#include "layers/core/initializer.h"

#include <algorithm>
#include <cmath>

namespace meshloom::layers {
namespace {

void fill_normal(const InitArgs& args, double std, std::int64_t begin, std::int64_t count, float* into) {
  normal(args.key, static_cast<std::uint64_t>(begin), count, into);
  for (std::int64_t i = 0; i < count; ++i) into[i] *= static_cast<float>(std);
}

}  // namespace

void Constant::fill_range(const InitArgs&, std::int64_t, std::int64_t count, float* into) const {
  std::fill_n(into, count, static_cast<float>(value));
}

void Normal::fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const {
  fill_normal(args, std, begin, count, into);
}

void DepthScaledNormal::fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count,
                                   float* into) const {
  fill_normal(args, std / std::sqrt(2.0 * static_cast<double>(args.depth)), begin, count, into);
}

void FanInNormal::fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count,
                             float* into) const {
  fill_normal(args, gain / std::sqrt(static_cast<double>(args.fan_in())), begin, count, into);
}

void TruncatedNormal::fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count,
                                 float* into) const {
  if (!(cut >= 0.1)) throw Error("TruncatedNormal", "cut must be at least 0.1", std::to_string(cut));
  for (std::int64_t i = 0; i < count; ++i) {
    double z = 0;
    std::uint64_t attempt = 0;
    do {  // each element has its own sequence, so that drawing one again does not change others
      const auto index = static_cast<std::uint64_t>(begin + i);
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
