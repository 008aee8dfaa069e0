// Rows of a pool overwritten at given places; in place nothing else of the pool is touched.
#include "kernels/index_copy/index_copy.h"

#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"

namespace meshloom::backends::cpu {
namespace {

// `count` numbers from one dtype to another; `scratch` holds as many floats.
void convert(const std::byte* from, hal::DType from_dtype, std::int64_t count, hal::DType into_dtype,
             std::byte* into, std::vector<float>& scratch) {
  if (from_dtype == into_dtype) {
    std::memcpy(into, from, static_cast<std::size_t>(count) * hal::size_of(from_dtype));
  } else if (into_dtype == hal::DType::f32) {
    widen(from, from_dtype, count, reinterpret_cast<float*>(into));
  } else if (from_dtype == hal::DType::f32) {
    narrow(reinterpret_cast<const float*>(from), count, into_dtype, into);
  } else {
    widen(from, from_dtype, count, scratch.data());
    narrow(scratch.data(), count, into_dtype, into);
  }
}

// Bindings x, slots, pool; an item is a row of x.
void run(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t slots = constants.integer(), width = constants.integer();
  const hal::DType from = constants.dtype(), into = constants.dtype();
  const std::int64_t from_bytes = width * static_cast<std::int64_t>(hal::size_of(from)),
                     into_bytes = width * static_cast<std::int64_t>(hal::size_of(into));
  std::vector<float> scratch(static_cast<std::size_t>(width));
  for (std::int64_t n = begin; n < end; ++n) {
    const std::int64_t slot = args.at<const std::int32_t>(1)[n];
    if (slot < 0 || slot >= slots) continue;
    convert(args.at<const std::byte>(0) + n * from_bytes, from, width, into,
            args.at<std::byte>(2) + slot * into_bytes, scratch);
  }
}

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo& target) {
  // Copies move whole ones.
  if (const std::int64_t bytes = call.inputs[0].bytes(); bytes % 4 != 0)
    return kernels::Fit::no("a pool of " + std::to_string(bytes) + " bytes is not of whole words");
  if (hal::size_of(call.inputs[0].dtype) == 1) return kernels::Fit::yes();
  return fit_floats(call, target);
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::IndexCopyDims d = kernels::index_copy_dims(args.call);
  if (!hal::same_place(args.inputs[0], args.outputs[0])) {
    args.commands.copy(reads(args.inputs[0]), writes(args.outputs[0]), args.label);
    args.commands.barrier();
  }
  record(args, "index_copy", d.rows,
         {reads(args.inputs[1]), reads(args.inputs[2]), reads_and_writes(args.outputs[0])},
         Constants()
             .integer(d.slots)
             .integer(d.width)
             .dtype(args.call.inputs[1].dtype)
             .dtype(args.call.inputs[0].dtype));
}

}  // namespace

Ops index_copy_ops() {
  return {{{"index_copy", run}},
          {{"index_copy", {low_precision_variant("rows in parallel, converted as they go", fit, encode)}}}};
}

}  // namespace meshloom::backends::cpu
