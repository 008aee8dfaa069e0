// top_k, gather and scatter_add over the columns of each row. An item is a row.
#include <algorithm>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"

namespace meshloom::backends::cpu {
namespace {

// Bindings x (rows, n), ids (rows, k).
void run_top_k(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer(), k = constants.integer();
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = args.at(0) + row * n;
    auto* ids = args.at<std::int32_t>(1) + row * k;
    for (std::int64_t j = 0, last = -1; j < k; ++j) {
      // The largest element that comes after the last one found.
      std::int64_t best = -1;
      for (std::int64_t i = 0; i < n; ++i)
        if ((last < 0 || x[i] < x[last] || (x[i] == x[last] && i > last)) && (best < 0 || x[i] > x[best]))
          best = i;
      last = best < 0 ? j : best;  // only a NaN leaves none
      ids[j] = static_cast<std::int32_t>(last);
    }
  }
}

// Bindings x (rows, n), ids (rows, k), y (rows, k).
void run_gather(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer(), k = constants.integer();
  for (std::int64_t i = begin * k; i < end * k; ++i) {
    const std::int64_t id = args.at<const std::int32_t>(1)[i];
    args.at(2)[i] = id >= 0 && id < n ? args.at(0)[i / k * n + id] : 0.0f;
  }
}

// Bindings v (rows, k), ids (rows, k), y (rows, n).
void run_scatter_add(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t n = constants.integer(), k = constants.integer();
  std::fill(args.at(2) + begin * n, args.at(2) + end * n, 0.0f);
  for (std::int64_t i = begin * k; i < end * k; ++i) {
    const std::int64_t id = args.at<const std::int32_t>(1)[i];
    if (id >= 0 && id < n) args.at(2)[i / k * n + id] += args.at(0)[i];
  }
}

void encode_top_k(const kernels::EncodeArgs& args) {
  const kernels::TensorType &x = args.call.inputs[0], &ids = args.call.outputs[0];
  record(args, "top_k", x.dim(0), {reads(args.inputs[0]), writes(args.outputs[0])},
         Constants().integer(x.dim(1)).integer(ids.dim(1)));
}

void encode_by_ids(const kernels::EncodeArgs& args, const char* kernel, std::int64_t n) {
  const kernels::TensorType& ids = args.call.inputs[1];
  record(args, kernel, ids.dim(0), {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
         Constants().integer(n).integer(ids.dim(1)));
}
void encode_gather(const kernels::EncodeArgs& args) {
  encode_by_ids(args, "gather", args.call.inputs[0].dim(1));
}
void encode_scatter_add(const kernels::EncodeArgs& args) {
  encode_by_ids(args, "scatter_add", args.call.outputs[0].dim(1));
}

}  // namespace

Ops top_k_ops() {
  return {
      {{"top_k", run_top_k}, {"gather", run_gather}, {"scatter_add", run_scatter_add}},
      {{"top_k", {simd_variant("rows in parallel, one scan for each column chosen", fit_any, encode_top_k)}},
       {"gather", {simd_variant("rows in parallel", fit_any, encode_gather)}},
       {"scatter_add", {simd_variant("rows in parallel", fit_any, encode_scatter_add)}}}};
}

}  // namespace meshloom::backends::cpu
