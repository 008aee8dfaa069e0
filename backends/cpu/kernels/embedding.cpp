// Embedding lookup, and its gradient: the sum of gradients by id.
#include <algorithm>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/rows.h"
#include "kernels/embedding/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/embedding.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "backends/cpu/simd/loops-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

void AddRow(const float* x, float* sum, std::int64_t n) {
  Over(n, [=](auto d, std::int64_t i) {
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), hn::LoadU(d, x + i)), d, sum + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(AddRow);

namespace {

// Bindings table (rows, d), ids, y; an item is an id.
void run_embedding(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t rows = constants.integer(), d = constants.integer();
  RowsIn table(args, 0, constants.dtype());
  RowsOut y(args, 2, constants.dtype());
  const std::int64_t first_id = constants.integer();
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t id = args.at<const std::int32_t>(1)[i] - first_id;
    float* row = y.row(i * d, d);
    if (id >= 0 && id < rows)
      std::copy_n(table.row(id * d, d), d, row);
    else
      std::fill_n(row, d, 0.0f);
    y.done();
  }
}

// Bindings ids, dy, dtable (rows, d); an item is a block of table rows, which searches all ids for its own and adds to what the
// block holds, or to zeros.
void run_embedding_grad(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t rows = constants.integer(), d = constants.integer(), count = constants.integer(),
                     size = constants.integer();
  const std::int64_t first = begin * size, last = std::min(rows, end * size);
  const auto* ids = args.at<const std::int32_t>(0);
  RowsIn dy(args, 1, constants.dtype());
  const bool residual = constants.integer() != 0;
  const std::int64_t first_id = constants.integer();
  const auto add_row = HWY_DYNAMIC_DISPATCH(AddRow);
  if (!residual) std::fill(args.at(2) + first * d, args.at(2) + last * d, 0.0f);
  for (std::int64_t i = 0; i < count; ++i)
    if (const std::int64_t id = ids[i] - first_id; id >= first && id < last)
      add_row(dy.row(i * d, d), args.at(2) + id * d, d);
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::TensorType& table = args.call.inputs[0];
  record(args, "embedding", args.call.inputs[1].elements(),
         {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
         Constants()
             .integer(table.dim(0))
             .integer(table.dim(1))
             .dtype(table.dtype)
             .dtype(args.call.outputs[0].dtype)
             .integer(kernels::embedding_first(args.call)));
}

void encode_grad(const kernels::EncodeArgs& args) {
  const kernels::TensorType& table = args.call.outputs[0];
  const RowBlocks blocks = row_blocks(table.dim(0), 256, 16);
  const bool residual = args.call.attrs.flag("residual");
  if (residual && !hal::same_place(args.inputs[2], args.outputs[0])) {
    args.commands.copy(reads(args.inputs[2]), writes(args.outputs[0]), args.label);
    args.commands.barrier();
  }
  record(args, "embedding_grad", blocks.count,
         {reads(args.inputs[0]), reads(args.inputs[1]),
          residual ? reads_and_writes(args.outputs[0]) : writes(args.outputs[0])},
         Constants()
             .integer(table.dim(0))
             .integer(table.dim(1))
             .integer(args.call.inputs[0].elements())
             .integer(blocks.size)
             .dtype(args.call.inputs[1].dtype)
             .integer(residual ? 1 : 0)
             .integer(kernels::embedding_first(args.call)));
}

}  // namespace

Ops embedding_ops() {
  return {{{"embedding", run_embedding}, {"embedding_grad", run_embedding_grad}},
          {{"embedding", {low_precision_variant("copies rows in parallel", fit_floats, encode)}},
           {"embedding_grad",
            {low_precision_variant("blocks of table rows in parallel, ids in order within each", fit_floats,
                                   encode_grad)}}}};
}

}  // namespace meshloom::backends::cpu
#endif
