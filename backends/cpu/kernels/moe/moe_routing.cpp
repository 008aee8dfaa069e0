// Rows to their experts and back. expert_groups is one work item; rows are moved in parallel.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/rows.h"
#include "kernels/moe_routing/moe_routing.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/moe/moe_routing.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// out = factor * x, or out += factor * x
void ScaleRow(const float* x, float factor, float* out, std::int64_t n, bool add) {
  Over(n, [=](auto d, std::int64_t i) {
    const auto product = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    hn::StoreU(add ? hn::Add(hn::LoadU(d, out + i), product) : product, d, out + i);
  });
}

float DotRow(const float* a, const float* b, std::int64_t n) {
  return SumOver(n,
                 [=](auto d, std::int64_t i) { return hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(ScaleRow);
HWY_EXPORT(DotRow);

namespace {

// Bindings ids (n, k), kept (n, k); an item is a span.
void run_expert_capacity(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t k = constants.integer(), groups = constants.integer(), capacity = constants.integer(),
                     span = constants.integer();
  std::vector<std::int64_t> taken;
  for (std::int64_t item = begin; item < end; ++item) {
    taken.assign(static_cast<std::size_t>(groups), 0);
    const auto* ids = args.at<const std::int32_t>(0) + item * span * k;
    auto* kept = args.at<std::int32_t>(1) + item * span * k;
    for (std::int64_t j = 0; j < k; ++j)
      for (std::int64_t i = j; i < span * k; i += k) {
        const bool is = ids[i] >= 0 && ids[i] < groups;
        kept[i] = is && taken[static_cast<std::size_t>(ids[i])]++ < capacity ? ids[i] : -1;
      }
  }
}

// Bindings ids (count), slot (count), offsets (groups + 1); one item: a counting sort.
void run_expert_groups(const KernelArgs& args, std::uint32_t, std::uint32_t, int) {
  ConstantReader constants(args);
  const std::int64_t count = constants.integer(), groups = constants.integer(), first = constants.integer();
  const auto* ids = args.at<const std::int32_t>(0);
  const auto group_of = [&](std::int64_t i) {
    const std::int64_t group = ids[i] - first;
    return static_cast<std::size_t>(group >= 0 && group < groups ? group : groups);
  };
  std::vector<std::int32_t> next(static_cast<std::size_t>(groups) + 2, 0);
  for (std::int64_t i = 0; i < count; ++i) ++next[group_of(i) + 1];
  for (std::size_t g = 1; g < next.size(); ++g) next[g] += next[g - 1];
  std::copy_n(next.begin(), groups + 1, args.at<std::int32_t>(2));
  for (std::int64_t i = 0; i < count; ++i) args.at<std::int32_t>(1)[i] = next[group_of(i)]++;
}

// Bindings x (n, d), slot (n, k), weight (n, k) or slot again, y (n k, d); an item is a row of x.
void run_moe_dispatch(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t k = constants.integer(), d = constants.integer();
  const bool weighted = constants.integer() != 0;
  const hal::DType dtype = constants.dtype();
  const auto* slot = args.at<const std::int32_t>(1);
  if (!weighted) {
    const std::int64_t bytes = d * static_cast<std::int64_t>(hal::size_of(dtype));
    for (std::int64_t i = begin * k; i < end * k; ++i)
      std::memcpy(args.at<std::byte>(3) + slot[i] * bytes, args.at<const std::byte>(0) + i / k * bytes,
                  static_cast<std::size_t>(bytes));
    return;
  }
  const auto scale_row = HWY_DYNAMIC_DISPATCH(ScaleRow);
  RowsIn from(args, 0, dtype);
  RowsOut to(args, 3, dtype);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = from.row(row * d, d);
    for (std::int64_t i = row * k; i < (row + 1) * k; ++i) {
      scale_row(x, args.at(2)[i], to.row(slot[i] * d, d), d, false);
      to.done();
    }
  }
}

// Bindings y (n k, d), slot (n, k), weight or slot again, x (n, d); an item is a row of x.
void run_moe_combine(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t k = constants.integer(), d = constants.integer();
  const bool weighted = constants.integer() != 0;
  const hal::DType dtype = constants.dtype();
  const auto scale_row = HWY_DYNAMIC_DISPATCH(ScaleRow);
  RowsIn from(args, 0, dtype);
  RowsOut to(args, 3, dtype);
  for (std::int64_t row = begin; row < end; ++row) {
    float* sum = to.row(row * d, d);
    for (std::int64_t i = row * k; i < (row + 1) * k; ++i)
      scale_row(from.row(args.at<const std::int32_t>(1)[i] * d, d), weighted ? args.at(2)[i] : 1.0f, sum, d,
                i != row * k);
    to.done();
  }
}

// Bindings y (n k, d), x (n, d), slot (n, k), out (n, k); an item is a row of x.
void run_row_dot(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t k = constants.integer(), d = constants.integer();
  const hal::DType dtype_y = constants.dtype(), dtype_x = constants.dtype();
  const auto dot_row = HWY_DYNAMIC_DISPATCH(DotRow);
  RowsIn y(args, 0, dtype_y), x(args, 1, dtype_x);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* of_x = x.row(row * d, d);
    for (std::int64_t i = row * k; i < (row + 1) * k; ++i)
      args.at(3)[i] = dot_row(y.row(args.at<const std::int32_t>(2)[i] * d, d), of_x, d);
  }
}

void encode_expert_capacity(const kernels::EncodeArgs& args) {
  const kernels::TensorType& ids = args.call.inputs[0];
  const std::int64_t span = args.call.attrs.integer("span");
  record(args, "expert_capacity", ids.dim(0) / span, {reads(args.inputs[0]), writes(args.outputs[0])},
         Constants()
             .integer(ids.dim(1))
             .integer(args.call.attrs.integer("groups"))
             .integer(args.call.attrs.integer("capacity"))
             .integer(span));
}

void encode_expert_groups(const kernels::EncodeArgs& args) {
  record(args, "expert_groups", 1, {reads(args.inputs[0]), writes(args.outputs[0]), writes(args.outputs[1])},
         Constants()
             .integer(args.call.inputs[0].elements())
             .integer(args.call.attrs.integer("groups"))
             .integer(kernels::first_group(args.call)));
}

void encode_rows(const kernels::EncodeArgs& args, const char* kernel) {
  const kernels::TensorType& slot = args.call.inputs[1];
  const bool weighted = args.inputs.size() > 2;
  record(args, kernel, slot.dim(0),
         {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[weighted ? 2 : 1]),
          writes(args.outputs[0])},
         Constants()
             .integer(slot.dim(1))
             .integer(args.call.inputs[0].dim(1))
             .integer(weighted)
             .dtype(args.call.inputs[0].dtype));
}
void encode_dispatch(const kernels::EncodeArgs& args) { encode_rows(args, "moe_dispatch"); }
void encode_combine(const kernels::EncodeArgs& args) { encode_rows(args, "moe_combine"); }

void encode_dot(const kernels::EncodeArgs& args) {
  const kernels::TensorType& slot = args.call.inputs[2];
  record(args, "row_dot", slot.dim(0),
         {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]), writes(args.outputs[0])},
         Constants()
             .integer(slot.dim(1))
             .integer(args.call.inputs[0].dim(1))
             .dtype(args.call.inputs[0].dtype)
             .dtype(args.call.inputs[1].dtype));
}

}  // namespace

Ops moe_routing_ops() {
  return {{{"expert_capacity", run_expert_capacity},
           {"expert_groups", run_expert_groups},
           {"moe_dispatch", run_moe_dispatch},
           {"moe_combine", run_moe_combine},
           {"row_dot", run_row_dot}},
          {{"expert_capacity",
            {simd_variant("spans in parallel, one pass over each", fit_any, encode_expert_capacity)}},
           {"expert_groups", {simd_variant("a counting sort", fit_any, encode_expert_groups)}},
           {"moe_dispatch",
            {low_precision_variant("rows in parallel, each to its slots", fit_floats, encode_dispatch)}},
           {"moe_combine",
            {low_precision_variant("rows in parallel, each summed in order", fit_floats, encode_combine)}},
           {"row_dot", {low_precision_variant("rows in parallel", fit_floats, encode_dot)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
