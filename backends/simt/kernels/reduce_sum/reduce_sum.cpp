// Sums in a fixed order: by column, in all, of squares.
#include <algorithm>
#include <array>
#include <utility>

#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kChunks = 64;           // of column_sum's first pass, at most
constexpr std::int64_t kOnePassChunks = 512;   // the same where column_sum_one_pass adds them
constexpr std::int64_t kRowsPerChunk = 16;     // at least
constexpr std::int64_t kTotalGroups = 1024;    // of total_sum's first pass, at most
constexpr std::int64_t kElementsPerLane = 64;  // of total_sum's first pass, about

std::int64_t columns_of(const CallView& call) {
  return call.attrs.integer("keep") == 0 ? 1 : call.outputs[0].elements();
}

std::int64_t total_groups(std::int64_t count, std::uint32_t width) {
  return std::clamp<std::int64_t>(count / (kElementsPerLane * width), 1, kTotalGroups);
}

// Whether the first pass adds the lanes of a workgroup, which costs CPU drivers more than reading their numbers.
bool adds_lanes(const hal::DeviceInfo& target) { return target.profile.kind == hal::ProfileKind::gpu; }

Fit fit_total(const CallView& call, const hal::DeviceInfo& target) {
  const std::string reason = unsupported_dtype(call);
  if (!reason.empty()) return Fit::no(reason);
  const std::uint32_t width = row_width(target);
  return Fit::yes({{"width", width}}, total_groups(call.inputs[0].elements(), width) * width * 4);
}

Fit fit_reduce(const CallView& call, const hal::DeviceInfo& target) {
  const std::int64_t n = columns_of(call);
  if (n == 1) return fit_total(call, target);
  Fit fit = fit_packs(call, target, std::array{n});
  fit.workspace_bytes = column_chunks(target, call.inputs[0].elements() / n, n) * n * 4;
  return fit;
}

std::vector<Fit> reduce_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  const std::int64_t n = columns_of(call);
  if (n == 1) return {};
  std::vector<Fit> others = other_packs(call, target, std::array{n});
  for (Fit& fit : others)
    fit.workspace_bytes = column_chunks(target, call.inputs[0].elements() / n, n) * n * 4;
  return others;
}

template <bool kSquare>
void encode_total(const EncodeArgs& args) {
  const auto width = static_cast<std::uint32_t>(args.choice.params.at("width"));
  const std::int64_t count = args.call.inputs[0].elements();
  const std::int64_t groups = total_groups(count, width);
  const char* square = kSquare ? "1" : "0";
  const hal::Define quads = define("QUADS", args.device.info().is_cpu ? 1 : 4);
  if (groups == 1) {
    launch(args, {.kernel = "total_sum",
                  .defines = {{"SQUARE", square}, {"ADD_LANES", "1"}, quads},
                  .width = width,
                  .bindings = {reads(args.inputs[0]), writes(args.outputs[0])},
                  .constants = {hal::word(count)}});
    return;
  }
  const bool add_lanes = adds_lanes(args.device.info());
  launch(args, {.kernel = "total_sum",
                .defines = {{"SQUARE", square}, {"ADD_LANES", add_lanes ? "1" : "0"}, quads},
                .width = width,
                .groups = {static_cast<std::uint32_t>(groups), 1, 1},
                .bindings = {reads(args.inputs[0]), writes(args.workspace)},
                .constants = {hal::word(count)}});
  args.commands.barrier();
  launch(args, {.kernel = "total_sum",
                .defines = {{"SQUARE", "0"}, {"ADD_LANES", "1"}, quads},
                .width = width,
                .bindings = {reads(args.workspace), writes(args.outputs[0])},
                .constants = {hal::word(groups * (add_lanes ? 1 : width))}});
}

void encode_reduce(const EncodeArgs& args) {
  const std::int64_t n = columns_of(args.call);
  if (n == 1)
    encode_total<false>(args);
  else
    column_sum(args, {.inputs = {args.inputs[0]},
                      .dtype = args.call.inputs[0].dtype,
                      .pack = args.choice.params.at("pack"),
                      .rows = args.call.inputs[0].elements() / n,
                      .n = n,
                      .workspace = args.workspace,
                      .out = args.outputs[0]});
}

}  // namespace

bool column_sum_one_pass_fits(const hal::DeviceInfo& target, std::int64_t n) {
  return !target.is_cpu && n % 4 == 0 && target.limits.max_workgroup >= 64;
}

void column_sum_one_pass(const EncodeArgs& args, const hal::Binding& rows_in, std::int64_t rows,
                         std::int64_t n, const hal::Binding& out) {
  constexpr std::int64_t kColumns = 16;  // packs of four, which are 256 bytes of a row
  launch(args, {.kernel = "column_sum_one_pass",
                .defines = {define("COLUMNS", kColumns)},
                .width = elementwise_width(args.device.info()) >= 256 ? 256U : 64U,
                .groups = {static_cast<std::uint32_t>(ceil_div(n, kColumns * 4)), 1, 1},
                .bindings = {reads(rows_in), writes(out)},
                .constants = {hal::word(n), hal::word(rows)}});
}

std::int64_t column_chunks(const hal::DeviceInfo& target, std::int64_t rows, std::int64_t n) {
  return std::clamp<std::int64_t>(rows / kRowsPerChunk, 1,
                                  column_sum_one_pass_fits(target, n) ? kOnePassChunks : kChunks);
}

void column_sum(const EncodeArgs& args, const ColumnSum& sum) {
  const std::int64_t n = sum.n, chunks = column_chunks(args.device.info(), sum.rows, n),
                     chunk = ceil_div(sum.rows, chunks);
  const std::uint32_t width = elementwise_width(args.device.info());
  const auto pass = [&](int kind, hal::DType dtype, std::int64_t pack, std::vector<hal::Binding> bindings,
                        std::int64_t rows, std::int64_t count, std::int64_t of_chunk) {
    launch(args, {.kernel = "column_sum",
                  .defines = {define("KIND", kind), define("PACK", pack),
                              define("NARROW", hal::is_low_precision(dtype) ? 1 : 0),
                              define("X_TYPE", dtype_code(dtype))},
                  .width = width,
                  .groups = {static_cast<std::uint32_t>(ceil_div(n / pack, width)),
                             static_cast<std::uint32_t>(count), 1},
                  .bindings = std::move(bindings),
                  .constants = {hal::word(n), hal::word(rows), hal::word(of_chunk)}});
  };
  const hal::Binding partial = chunks == 1 ? sum.out : slice(sum.workspace, 0, chunks * n * 4);
  std::vector<hal::Binding> bindings;
  for (const hal::Binding& input : sum.inputs) bindings.push_back(reads(whole_words(input)));
  bindings.push_back(writes(partial));
  pass(sum.kind, sum.dtype, sum.pack, bindings, sum.rows, chunks, chunk);
  if (chunks == 1) return;
  args.commands.barrier();
  if (column_sum_one_pass_fits(args.device.info(), n))
    column_sum_one_pass(args, partial, chunks, n, sum.out);
  else
    pass(0, hal::DType::f32, 1, {reads(partial), writes(sum.out)}, chunks, 1, chunks);
}

std::vector<kernels::OpVariants> reduce_sum_ops() {
  kernels::Variant reduce =
      simt_variant("two passes of strided sums in a fixed order", fit_reduce, encode_reduce, true);
  reduce.alternatives = reduce_alternatives;
  return {{"reduce_sum", {reduce}},
          {"square_sum",
           {simt_variant("two passes of strided sums in a fixed order", fit_total, encode_total<true>)}}};
}

}  // namespace meshloom::backends::simt
