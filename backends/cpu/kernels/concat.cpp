// concat along the last dimension, and slice_features, its inverse.
#include <algorithm>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"

namespace meshloom::backends::cpu {
namespace {

// Bindings a, b, y; an item is a row of y.
void run_concat(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t a = constants.integer(), b = constants.integer(), group = constants.integer();
  for (std::int64_t r = begin; r < end; ++r) {
    float* y = args.at(2) + r * (a + b);
    std::copy_n(args.at(0) + r * a, a, y);
    std::copy_n(args.at(1) + r / group * b, b, y + a);
  }
}

// Bindings x, y; an item is a row of y.
void run_slice(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t width = constants.integer(), first = constants.integer(), count = constants.integer(),
                     group = constants.integer();
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = args.at(0) + r * group * width + first;
    float* y = args.at(1) + r * count;
    std::copy_n(x, count, y);
    for (std::int64_t g = 1; g < group; ++g)
      for (std::int64_t i = 0; i < count; ++i) y[i] += x[g * width + i];
  }
}

void encode_concat(const kernels::EncodeArgs& args) {
  const kernels::TensorType &a = args.call.inputs[0], &b = args.call.inputs[1];
  record(args, "concat", a.dim(0), {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
         Constants().integer(a.dim(1)).integer(b.dim(1)).integer(a.dim(0) / b.dim(0)));
}

void encode_slice(const kernels::EncodeArgs& args) {
  const kernels::TensorType& y = args.call.outputs[0];
  record(args, "slice_features", y.dim(0), {reads(args.inputs[0]), writes(args.outputs[0])},
         Constants()
             .integer(args.call.inputs[0].dim(1))
             .integer(args.call.attrs.integer("begin"))
             .integer(y.dim(1))
             .integer(args.call.attrs.integer("group")));
}

}  // namespace

Ops concat_ops() {
  return {{{"concat", run_concat}, {"slice_features", run_slice}},
          {{"concat", {simd_variant("a row per item", fit_any, encode_concat)}},
           {"slice_features", {simd_variant("a row per item", fit_any, encode_slice)}}}};
}

}  // namespace meshloom::backends::cpu
