// The simplest matmul: any shape, any device.
#include "backends/simt/matmul.h"

namespace meshloom::backends::simt {
namespace {

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unfit(call);
  return reason.empty() ? kernels::Fit::yes() : kernels::Fit::no(reason);
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::MatmulDims d = kernels::matmul_dims(args.call);
  const std::int64_t count = d.g * d.m * d.n;
  const std::uint32_t width = elementwise_width(args.device.info());
  launch(args,
         {.kernel = "matmul_naive",
          .defines = {matmul_activation(d)},
          .width = width,
          .groups = grid(count, width),
          .bindings = matmul_bindings(args, d),
          .constants = {hal::word(count), hal::word(d.m), hal::word(d.n), hal::word(d.k), matmul_flags(d)}});
}

}  // namespace

void add_matmul_naive(kernels::Catalog& catalog, const std::string& backend) {
  catalog.add(kernels::Variant{.op = "matmul",
                               .backend = backend,
                               .name = "naive",
                               .kinds = {},
                               .rank = 0,
                               .about = "one element of C per invocation: any shape on any device",
                               .fit = fit,
                               .encode = encode});
}

}  // namespace meshloom::backends::simt
