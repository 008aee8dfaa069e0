// Rotary position embedding with its own sine and cosine, accurate on every driver.
#include <algorithm>
#include <cmath>

#include "backends/simt/host/launch.h"
#include "kernels/rope/rope.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kMaxPosition = 1 << 20;  // the range reduction's three parts hold so far

Fit fit(const CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_dtype(call);
  if (!reason.empty()) return Fit::no(reason);
  const std::int64_t last = call.attrs.integer("offset") + call.inputs[0].dim(1);
  if (last > kMaxPosition) return Fit::no("positions go to " + std::to_string(last) + ", at most 2^20 here");
  return Fit::yes();
}

void encode(const EncodeArgs& args) {
  const kernels::TensorType& x = args.call.inputs[0];
  const kernels::Attrs& attrs = args.call.attrs;
  const std::int64_t width = x.dim(3);
  const std::int64_t dims = attrs.integer("dims") == 0 ? width : attrs.integer("dims");
  // Where arithmetic is dear, heads share an angle; else they are more invocations.
  const std::int64_t heads = args.device.info().is_cpu ? std::min<std::int64_t>(x.dim(2), 32) : 1;
  const std::int64_t count = x.dim(0) * x.dim(1) * ceil_div(x.dim(2), heads) * (dims / 2 + width - dims);
  const double exponent = std::log2(attrs.number("theta")) * 2 / static_cast<double>(dims);
  const kernels::RopeScaling scaling = kernels::rope_scaling(attrs);
  // 12 bits of mantissa: the product with a pair's index is exact.
  int power = 0;
  const double mantissa = std::frexp(exponent, &power);
  const double high = std::ldexp(std::nearbyint(std::ldexp(mantissa, 12)), power - 12);
  launch(args,
         {.kernel = "rope",
          .defines = {{"INTERLEAVED", attrs.text("pairing") == "interleaved" ? "1" : "0"},
                      {"HEADS", std::to_string(heads)}},
          .bindings = {reads(args.inputs[0]), writes(args.outputs[0])},
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
  return {{"rope", {simt_variant("one invocation per pair, own sine and cosine", fit, encode)}}};
}

}  // namespace meshloom::backends::simt
