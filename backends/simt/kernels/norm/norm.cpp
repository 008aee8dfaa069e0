// RMSNorm and LayerNorm, forward and backward.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::int64_t width_of(const CallView& call) { return call.inputs[0].dim(-1); }
std::int64_t rows_of(const CallView& call) { return call.inputs[0].elements() / width_of(call); }

// Floats of a row that an invocation of a GPU may hold: backward there are four tensors of them, and two more of the next row.
constexpr std::int64_t kHeld = 32, kHeldBackward = 16;

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  return fit_packs(call, target, std::array{width_of(call)}, HostForm::packs);
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  return other_packs(call, target, std::array{width_of(call)}, HostForm::packs);
}

// The weight's gradient, and the bias's: where rows are held, a workgroup adds up some of them, and column_sum those sums.
struct Backward {
  RowBatches batches;
  std::int64_t n, rows, outputs;  // outputs: of gradients that are sums over rows
  std::int64_t chunk, chunks;     // rows of a workgroup that adds them up
  bool one_pass;                  // column_sum_one_pass adds up what they leave
  // The only chunk of rows leaves the only other gradient where it belongs.
  bool direct() const { return batches.held && chunks == 1 && outputs == 1; }
  std::int64_t rest_bytes;  // of column_sum's own workspace
  std::int64_t sums_bytes() const { return aligned(chunks * n * 4); }
  std::int64_t workspace_bytes() const {
    if (!batches.held) return rest_bytes;
    return direct() ? 0 : outputs * sums_bytes() + rest_bytes;
  }
};

Backward backward_of(const CallView& call, const hal::DeviceInfo& target, std::int64_t pack) {
  constexpr std::int64_t kChunks = 512, kRowsPerChunk = 4;  // at most; at least
  const std::int64_t n = width_of(call), rows = rows_of(call);
  const std::int64_t chunk = std::max(ceil_div(rows, kChunks), kRowsPerChunk);
  const std::int64_t chunks = ceil_div(rows, chunk);
  const RowBatches batches =
      row_batches(target, n, pack, kHeldBackward, pack == 8 ? kHeldBackward : kHeldBackward / 2);
  const bool one_pass = batches.held && column_sum_one_pass_fits(target, n);
  const std::int64_t summed = batches.held ? chunks : rows;
  return {batches, n,      rows,     static_cast<std::int64_t>(call.outputs.size()) - 1,
          chunk,   chunks, one_pass, one_pass ? 0 : column_chunks(target, summed, n) * n * 4};
}

Fit with_workspace(Fit fit, const CallView& call, const hal::DeviceInfo& target) {
  if (fit.ok) fit.workspace_bytes = backward_of(call, target, fit.params.at("pack")).workspace_bytes();
  return fit;
}

Fit fit_grad(const CallView& call, const hal::DeviceInfo& target) {
  return with_workspace(fit(call, target), call, target);
}

std::vector<Fit> grad_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> others = alternatives(call, target);
  for (Fit& other : others) other = with_workspace(std::move(other), call, target);
  return others;
}

std::vector<hal::Define> defines_of(const EncodeArgs& args, const RowBatches& batches, bool centred) {
  std::vector<hal::Define> defines = pack_defines(args.call, args.choice.params.at("pack"));
  for (hal::Define& item : batch_defines(batches)) defines.push_back(std::move(item));
  defines.push_back(dtype_define("X_TYPE", args.call.inputs[0]));
  defines.push_back(define("CENTRED", centred ? 1 : 0));
  return defines;
}

template <bool kCentred>
void encode(const EncodeArgs& args) {
  const std::int64_t n = width_of(args.call), rows = rows_of(args.call);
  const RowBatches batches = row_batches(args.device.info(), n, args.choice.params.at("pack"), kHeld, kHeld);
  Launch command{.kernel = "norm",
                 .defines = defines_of(args, batches, kCentred),
                 .width = batches.width,
                 .groups = grid(rows, 1),
                 .constants = {hal::word(n), hal::word(rows),
                               hal::word(static_cast<float>(args.call.attrs.number("eps")))}};
  for (const hal::Binding& binding : args.inputs) command.bindings.push_back(reads(whole_words(binding)));
  for (const hal::Binding& binding : args.outputs) command.bindings.push_back(writes(whole_words(binding)));
  launch(args, command);
}

// dx, and in `sums`, where there are any, those of the other gradients over each chunk of rows.
template <bool kCentred>
void encode_rows(const EncodeArgs& args, const Backward& work, const std::optional<hal::Binding>& sums) {
  const std::int64_t chunk = sums ? work.chunk : 1;
  Launch command{.kernel = "norm_grad",
                 .defines = defines_of(args, work.batches, kCentred),
                 .width = work.batches.width,
                 .groups = grid(ceil_div(work.rows, chunk), 1),
                 .constants = {hal::word(work.n), hal::word(work.rows), hal::word(chunk),
                               hal::word(work.sums_bytes() / 4)}};
  command.defines.push_back(define("SUMS", sums ? 1 : 0));
  command.defines.push_back(define("RESIDUAL", args.call.attrs.flag("residual") ? 1 : 0));
  for (const hal::Binding& binding : args.inputs) command.bindings.push_back(reads(whole_words(binding)));
  command.bindings.push_back(writes(whole_words(args.outputs[0])));
  if (sums) command.bindings.push_back(writes(*sums));
  launch(args, command);
}

template <bool kCentred>
void encode_grad(const EncodeArgs& args) {
  const std::int64_t pack = args.choice.params.at("pack");
  const Backward work = backward_of(args.call, args.device.info(), pack);
  const std::size_t outputs = args.outputs.size();
  if (work.batches.held) {
    if (work.direct()) return encode_rows<kCentred>(args, work, args.outputs[1]);
    encode_rows<kCentred>(args, work, slice(args.workspace, 0, work.outputs * work.sums_bytes()));
    const auto sums_of = [&](std::size_t output) {
      return slice(args.workspace, static_cast<std::int64_t>(output - 1) * work.sums_bytes(),
                   work.chunks * work.n * 4);
    };
    if (work.one_pass) {
      args.commands.barrier();
      for (std::size_t o = 1; o < outputs; ++o)
        column_sum_one_pass(args, sums_of(o), work.chunks, work.n, args.outputs[o]);
      return;
    }
    const hal::Binding rest = slice(args.workspace, work.outputs * work.sums_bytes(), work.rest_bytes);
    for (std::size_t o = 1; o < outputs; ++o) {
      args.commands.barrier();
      column_sum(args, {.inputs = {sums_of(o)},
                        .rows = work.chunks,
                        .n = work.n,
                        .workspace = rest,
                        .out = args.outputs[o]});
    }
    return;
  }
  // The sums over rows first: dx may take dy's place.
  const hal::Binding x = args.inputs[0], dy = args.inputs[kCentred ? 4 : 3];
  const hal::Binding rstd = args.inputs[kCentred ? 3 : 2];
  ColumnSum sum{.kind = kCentred ? 2 : 1,
                .inputs = kCentred ? std::vector{x, args.inputs[2], rstd, dy} : std::vector{x, rstd, dy},
                .dtype = args.call.inputs[0].dtype,
                .pack = pack,
                .rows = work.rows,
                .n = work.n,
                .workspace = args.workspace,
                .out = args.outputs[1]};
  column_sum(args, sum);
  args.commands.barrier();
  if constexpr (kCentred) {
    sum.kind = 0;
    sum.inputs = {dy};
    sum.out = args.outputs[2];
    column_sum(args, sum);
    args.commands.barrier();
  }
  encode_rows<kCentred>(args, work, std::nullopt);
}

}  // namespace

std::vector<kernels::OpVariants> norm_ops() {
  const auto variant = [](std::string about, decltype(kernels::Variant::fit) fits,
                          decltype(kernels::Variant::encode) encodes,
                          decltype(kernels::Variant::alternatives) others) {
    kernels::Variant made = simt_variant(std::move(about), fits, encodes, true);
    made.alternatives = others;
    return made;
  };
  const std::string row = "one workgroup per row, folded by a fixed tree";
  const std::string grad = "one workgroup per row; the weight's gradient by chunks of rows in a fixed order";
  return {{"rms_norm", {variant(row, fit, encode<false>, alternatives)}},
          {"rms_norm_grad", {variant(grad, fit_grad, encode_grad<false>, grad_alternatives)}},
          {"layer_norm", {variant(row, fit, encode<true>, alternatives)}},
          {"layer_norm_grad", {variant(grad, fit_grad, encode_grad<true>, grad_alternatives)}}};
}

}  // namespace meshloom::backends::simt
