// Sums in a fixed order: by column, in all, of squares.
#include <algorithm>

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kChunks = 64;           // of column_sum's first pass, at most
constexpr std::int64_t kRowsPerChunk = 16;     // at least
constexpr std::int64_t kTotalGroups = 1024;    // of total_sum's first pass, at most
constexpr std::int64_t kElementsPerLane = 64;  // of total_sum's first pass, about

std::int64_t columns_of(const CallView& call) {
  return call.attrs.integer("keep") == 0 ? 1 : call.outputs[0].elements();
}

std::int64_t total_groups(std::int64_t count, std::uint32_t width) {
  return std::clamp<std::int64_t>(count / (kElementsPerLane * width), 1, kTotalGroups);
}

Fit fit_total(const CallView& call, const hal::DeviceInfo& target) {
  const std::string reason = unsupported_dtype(call);
  if (!reason.empty()) return Fit::no(reason);
  const std::uint32_t width = row_width(target);
  return Fit::yes({{"width", width}}, total_groups(call.inputs[0].elements(), width) * width * 4);
}

Fit fit_reduce(const CallView& call, const hal::DeviceInfo& target) {
  const std::int64_t n = columns_of(call);
  if (n == 1) return fit_total(call, target);
  const std::string reason = unsupported_dtype(call);
  if (!reason.empty()) return Fit::no(reason);
  return Fit::yes({}, column_chunks(call.inputs[0].elements() / n) * n * 4);
}

template <bool kSquare>
void encode_total(const EncodeArgs& args) {
  const auto width = static_cast<std::uint32_t>(args.choice.params.at("width"));
  const std::int64_t count = args.call.inputs[0].elements();
  const std::int64_t groups = total_groups(count, width);
  const char* square = kSquare ? "1" : "0";
  if (groups == 1) {
    launch(args, {.kernel = "total_sum",
                  .defines = {{"SQUARE", square}, {"FINAL", "1"}},
                  .width = width,
                  .bindings = {reads(args.inputs[0]), writes(args.outputs[0])},
                  .constants = {hal::word(count)}});
    return;
  }
  launch(args, {.kernel = "total_sum",
                .defines = {{"SQUARE", square}, {"FINAL", "0"}},
                .width = width,
                .groups = {static_cast<std::uint32_t>(groups), 1, 1},
                .bindings = {reads(args.inputs[0]), writes(args.workspace)},
                .constants = {hal::word(count)}});
  args.commands.barrier();
  launch(args, {.kernel = "total_sum",
                .defines = {{"SQUARE", "0"}, {"FINAL", "1"}},
                .width = width,
                .bindings = {reads(args.workspace), writes(args.outputs[0])},
                .constants = {hal::word(groups * width)}});
}

void encode_reduce(const EncodeArgs& args) {
  const std::int64_t n = columns_of(args.call);
  if (n == 1)
    encode_total<false>(args);
  else
    column_sum(args, 0, {reads(args.inputs[0])}, args.call.inputs[0].elements() / n, n, args.workspace,
               args.outputs[0]);
}

}  // namespace

std::int64_t column_chunks(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / kRowsPerChunk, 1, kChunks);
}

void column_sum(const EncodeArgs& args, int kind, std::vector<hal::Binding> inputs, std::int64_t rows,
                std::int64_t n, hal::Binding workspace, hal::Binding out) {
  const std::int64_t chunks = column_chunks(rows);
  const std::int64_t chunk = ceil_div(rows, chunks);
  const std::uint32_t width = elementwise_width(args.device.info());
  const auto groups = static_cast<std::uint32_t>(ceil_div(n, width));
  inputs.push_back(writes(chunks == 1 ? out : slice(workspace, 0, chunks * n * 4)));
  launch(args, {.kernel = "column_sum",
                .defines = {{"KIND", std::to_string(kind)}},
                .width = width,
                .groups = {groups, static_cast<std::uint32_t>(chunks), 1},
                .bindings = inputs,
                .constants = {hal::word(n), hal::word(rows), hal::word(chunk)}});
  if (chunks == 1) return;
  args.commands.barrier();
  launch(args, {.kernel = "column_sum",
                .defines = {{"KIND", "0"}},
                .width = width,
                .groups = {groups, 1, 1},
                .bindings = {reads(slice(workspace, 0, chunks * n * 4)), writes(out)},
                .constants = {hal::word(n), hal::word(chunks), hal::word(chunks)}});
}

std::vector<kernels::OpVariants> reduce_sum_ops() {
  return {{"reduce_sum",
           {simt_variant("two passes of strided sums in a fixed order", fit_reduce, encode_reduce)}},
          {"square_sum",
           {simt_variant("two passes of strided sums in a fixed order", fit_total, encode_total<true>)}}};
}

}  // namespace meshloom::backends::simt
