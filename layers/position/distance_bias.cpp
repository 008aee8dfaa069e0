#include "layers/position/distance_bias.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"

namespace meshloom::layers {
namespace {

// A tensor of constants, one per head. A call can make several of them.
Tensor constants(kernels::Builder& builder, const std::vector<double>& values) {
  std::vector<Tensor> scalars;
  for (std::size_t at = 0; at < values.size();) {
    std::vector<std::string> texts;
    for (; at < values.size() && texts.size() < kernels::kMaxElementwiseOperands; ++at)
      texts.push_back(fmt::format("{}", values[at]));
    kernels::Attrs attrs{{"shape", std::vector<std::int64_t>{1}},
                         {"expr", fmt::format("{}", fmt::join(texts, ";"))}};
    const std::vector<Tensor> made = builder.call("elementwise", {}, attrs);
    scalars.insert(scalars.end(), made.begin(), made.end());
  }
  return kernels::stack(scalars);
}

}  // namespace

std::unique_ptr<Module> Alibi::Config::build(const Place& place) const {
  return std::make_unique<Alibi>(*this, place);
}

void Alibi::apply(Context& ctx, kernels::FlashAttentionOptions& options) {
  options.slopes = constants(ctx.builder(), slopes_);
}

std::vector<double> Alibi::slopes(std::int64_t heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> all;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double step = h < power ? static_cast<double>(h + 1) : static_cast<double>(h - power) + 0.5;
    all.push_back(std::exp2(-8 * step / static_cast<double>(power)));
  }
  return all;
}

void add_distance_bias_classes(ClassTable& classes) { classes.add<Alibi::Config>(); }

}  // namespace meshloom::layers
