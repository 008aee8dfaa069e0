// Rotary position embedding with its own sine and cosine, accurate on every driver.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "backends/simt/host/packs.h"
#include "kernels/rope/rope.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kMaxPosition = 1 << 20;  // the range reduction's three parts hold so far

std::int64_t rotated_dims(const CallView& call) {
  const std::int64_t dims = call.attrs.integer("dims");
  return dims == 0 ? call.inputs[0].dim(3) : dims;
}

bool interleaved(const CallView& call) { return call.attrs.text("pairing") == "interleaved"; }

// What must be whole packs: a head, and what is rotated of it or either half of that.
std::array<std::int64_t, 2> extents_of(const CallView& call) {
  return {call.inputs[0].dim(3), interleaved(call) ? rotated_dims(call) : rotated_dims(call) / 2};
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const std::int64_t last =
      call.attrs.integer("offset") + (kernels::rope_positions(call) ? 0 : call.inputs[0].dim(1));
  if (last > kMaxPosition) return Fit::no("positions go to " + std::to_string(last) + ", at most 2^20 here");
  return fit_packs(call, target, extents_of(call), HostForm::packs);
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  return other_packs(call, target, extents_of(call), HostForm::packs);
}

void encode(const EncodeArgs& args) {
  constexpr std::int64_t kAtOnce = 4, kOfHost = 32;
  const kernels::TensorType& x = args.call.inputs[0];
  const kernels::Attrs& attrs = args.call.attrs;
  const std::int64_t width = x.dim(3), all = x.dim(2), dims = rotated_dims(args.call);
  const std::int64_t pack = args.choice.params.at("pack");
  std::int64_t at_once = kAtOnce;
  while (all % at_once != 0) --at_once;
  // Where arithmetic is dear, more heads share an angle; else they are more invocations.
  const std::int64_t heads = args.device.info().is_cpu ? std::min(all, kOfHost / at_once * at_once) : at_once;
  const bool pairs_inside = interleaved(args.call) && pack > 1;
  const std::int64_t items = ((pairs_inside ? dims : dims / 2) + width - dims) / pack;
  const std::int64_t count = x.dim(0) * x.dim(1) * ceil_div(all, heads) * items;
  const double exponent = std::log2(attrs.number("theta")) * 2 / static_cast<double>(dims);
  const kernels::RopeScaling scaling = kernels::rope_scaling(attrs);
  // 12 bits of mantissa: the product with a pair's index is exact.
  int power = 0;
  const double mantissa = std::frexp(exponent, &power);
  const double high = std::ldexp(std::nearbyint(std::ldexp(mantissa, 12)), power - 12);
  std::vector<hal::Define> defines = pack_defines(args.call, pack);
  for (hal::Define& item :
       std::vector{dtype_define("X_TYPE", x), define("INTERLEAVED", interleaved(args.call) ? 1 : 0),
                   define("HEADS", heads), define("AT_ONCE", at_once)})
    defines.push_back(std::move(item));
  if (const std::vector<double> factors = kernels::rope_factors(attrs); !factors.empty()) {
    std::string selects;
    for (std::size_t p = 0; p < factors.size(); ++p)
      selects += fmt::format("FACTOR({}.0f, {:.9e}f) ", p, 1 / factors[p]);
    defines.push_back({"FACTORS", std::move(selects)});
  }
  std::vector<hal::Binding> bindings{reads(whole_words(args.inputs[0])),
                                     writes(whole_words(args.outputs[0]))};
  if (kernels::rope_positions(args.call)) {
    defines.push_back(define("POSITIONS", 1));
    bindings.push_back(reads(args.inputs[1]));
  }
  launch(args,
         {.kernel = "rope",
          .defines = std::move(defines),
          .bindings = std::move(bindings),
          .constants = {hal::word(count), hal::word(x.dim(1)), hal::word(x.dim(2)), hal::word(width),
                        hal::word(dims), hal::word(attrs.integer("offset")),
                        hal::word(static_cast<float>(high)), hal::word(static_cast<float>(exponent - high)),
                        hal::word(attrs.flag("inverse") ? -1.0f : 1.0f),
                        hal::word(static_cast<float>(1 / scaling.factor)),
                        hal::word(static_cast<float>(scaling.by_frequency)),
                        hal::word(static_cast<float>(scaling.by_pair)),
                        hal::word(static_cast<float>(scaling.shift)),
                        hal::word(static_cast<float>(kernels::rope_magnitude(attrs)))},
          .items = count});
}

}  // namespace

std::vector<kernels::OpVariants> rope_ops() {
  kernels::Variant variant =
      simt_variant("one invocation per pair or pack of pairs, own sine and cosine", fit, encode, true);
  variant.alternatives = alternatives;
  return {{"rope", {variant}}};
}

}  // namespace meshloom::backends::simt
