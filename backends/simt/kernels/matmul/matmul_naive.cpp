// The simplest matmul: any shape, any device.
#include "backends/simt/kernels/matmul/matmul.h"

namespace meshloom::backends::simt {
namespace {

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo& target) {
  const std::string reason = unsupported_dtype(call);
  if (!reason.empty()) return kernels::Fit::no(reason);
  const kernels::MatmulDims d = kernels::matmul_dims(call);
  const std::int64_t depth = k_depth(target, d.k, 1, 1, 1);
  return kernels::Fit::yes({{"depth", depth}}, sums_bytes(d, depth));
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::MatmulDims d = kernels::matmul_dims(args.call);
  const std::int64_t count = d.g * d.m * d.n;
  const std::uint32_t width = elementwise_width(args.device.info());
  for (const KPart& part : k_parts(args, d, args.choice.params.at("depth"), args.workspace)) {
    if (part.begin > 0) args.commands.barrier();
    launch(args, {.kernel = "matmul_naive",
                  .defines = {part.activation},
                  .width = width,
                  .groups = grid(count, width),
                  .bindings = part.bindings,
                  .constants = {hal::word(count), hal::word(d.m), hal::word(d.n), hal::word(d.k), part.flags,
                                hal::word(part.begin), hal::word(part.end)}});
  }
}

}  // namespace

kernels::Variant matmul_naive() {
  return {.name = "naive",
          .about = "one element of C per invocation, for any shape on any device",
          .fit = fit,
          .encode = encode,
          .row_exact = true};
}

}  // namespace meshloom::backends::simt
