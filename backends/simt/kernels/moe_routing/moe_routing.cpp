// Rows to their groups and back. Sorting without atomics: counts by chunk and group, their sums, then places.
#include "kernels/moe_routing/moe_routing.h"

#include <array>
#include <utility>

#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

constexpr std::int64_t kChunk = 256;  // ids that one invocation sorts into one group

std::int64_t chunks_of(const CallView& call) { return ceil_div(call.inputs[0].elements(), kChunk); }
std::int64_t all_groups(const CallView& call) {
  return call.attrs.integer("groups") + 1;
}  // and that of no group

Fit fit_loops(const CallView& call, const hal::DeviceInfo& target, std::int64_t iterations,
              std::int64_t workspace = 0) {
  std::string reason = unsupported_dtype(call);
  if (reason.empty()) reason = unsupported_iterations(target, static_cast<double>(iterations));
  return reason.empty() ? Fit::yes({}, workspace) : Fit::no(reason);
}
Fit fit_limit(const CallView& call, const hal::DeviceInfo& target) {
  return fit_loops(call, target, call.attrs.integer("span") * call.inputs[0].dim(1));
}
Fit fit_group(const CallView& call, const hal::DeviceInfo& target) {
  return fit_loops(call, target, std::max(chunks_of(call), all_groups(call) + kChunk),
                   (chunks_of(call) + 1) * all_groups(call) * 4);
}

void encode_limit(const EncodeArgs& args) {
  const kernels::TensorType& ids = args.call.inputs[0];
  const std::int64_t span = args.call.attrs.integer("span"),
                     count = ids.dim(0) / span * all_groups(args.call);
  launch_rows(
      args, count,
      {.kernel = "expert_capacity",
       .bindings = {reads(args.inputs[0]), writes(args.outputs[0])},
       .constants = {hal::word(count), hal::word(ids.dim(1)), hal::word(args.call.attrs.integer("groups")),
                     hal::word(args.call.attrs.integer("capacity")), hal::word(span)}});
}

void encode_group(const EncodeArgs& args) {
  const std::int64_t groups = args.call.attrs.integer("groups"), all = groups + 1,
                     chunks = chunks_of(args.call), items = chunks * all;
  const hal::Word ids = hal::word(args.call.inputs[0].elements()),
                  first = hal::word(kernels::first_group(args.call));
  launch_rows(args, items,
              {.kernel = "group_count",
               .bindings = {reads(args.inputs[0]), writes(args.workspace)},
               .constants = {hal::word(items), ids, hal::word(groups), hal::word(kChunk), first}});
  args.commands.barrier();
  hal::Binding counts = args.workspace;
  counts.access = hal::Access::read_write;
  launch_rows(
      args, all,
      {.kernel = "group_total", .bindings = {counts}, .constants = {hal::word(all), hal::word(chunks)}});
  args.commands.barrier();
  launch_rows(
      args, items,
      {.kernel = "group_place",
       .bindings = {reads(args.inputs[0]), reads(args.workspace), writes(args.outputs[0]),
                    writes(args.outputs[1])},
       .constants = {hal::word(items), ids, hal::word(groups), hal::word(kChunk), first, hal::word(chunks)}});
}

std::int64_t width_of(const CallView& call) { return call.inputs[0].dim(1); }

Fit fit_move(const CallView& call, const hal::DeviceInfo& target) {
  return fit_packs(call, target, std::array{width_of(call)}, HostForm::packs);
}
std::vector<Fit> move_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  return other_packs(call, target, std::array{width_of(call)}, HostForm::packs);
}

// `words`: rows are moved as words of four bytes, which stay as they are.
void encode_move(const EncodeArgs& args, const char* kernel, bool words) {
  constexpr std::int64_t kWordBytes = 4, kWordPack = 4;
  const kernels::TensorType &rows = args.call.inputs[0], &slot = args.call.inputs[1];
  const std::int64_t pack = words ? kWordPack : args.choice.params.at("pack");
  const std::int64_t width =
      words ? width_of(args.call) * static_cast<std::int64_t>(hal::size_of(rows.dtype)) / kWordBytes
            : width_of(args.call);
  const std::int64_t count = slot.dim(0) * width / pack;
  const bool weighted = args.inputs.size() > 2;
  std::vector<hal::Define> defines = pack_defines(args.call, pack);
  defines.push_back(dtype_define("ROW_TYPE", rows));
  defines.push_back(define("WEIGHTED", weighted ? 1 : 0));
  if (words) defines.push_back(define("WORDS", 1));
  std::vector<hal::Binding> bindings{reads(whole_words(args.inputs[0])), reads(args.inputs[1]),
                                     writes(whole_words(args.outputs[0]))};
  if (weighted) bindings.push_back(reads(args.inputs[2]));
  launch(args, {.kernel = kernel,
                .defines = std::move(defines),
                .bindings = std::move(bindings),
                .constants = {hal::word(count), hal::word(slot.dim(1)), hal::word(width)},
                .items = count,
                .pack = pack});
}
void encode_spread(const EncodeArgs& args) {
  encode_move(args, "moe_dispatch", args.inputs.size() == 2 && args.choice.params.at("pack") > 1);
}
void encode_combine(const EncodeArgs& args) { encode_move(args, "moe_combine", false); }

Fit fit_dot(const CallView& call, const hal::DeviceInfo& target) {
  return fit_packs(call, target, std::array{width_of(call)}, HostForm::packs);
}
std::vector<Fit> dot_alternatives(const CallView& call, const hal::DeviceInfo& target) {
  return other_packs(call, target, std::array{width_of(call)}, HostForm::packs);
}

void encode_dot(const EncodeArgs& args) {
  constexpr std::int64_t kHeld = 32;  // floats of a row that an invocation of a GPU may hold
  const std::int64_t count = args.call.outputs[0].elements(), d = width_of(args.call);
  const std::int64_t pack = args.choice.params.at("pack");
  const RowBatches batches = row_batches(args.device.info(), d, pack, kHeld, kHeld);
  std::vector<hal::Define> defines = pack_defines(args.call, pack);
  for (hal::Define& item : batch_defines(batches)) defines.push_back(std::move(item));
  defines.push_back(dtype_define("Y_TYPE", args.call.inputs[0]));
  defines.push_back(dtype_define("X_TYPE", args.call.inputs[1]));
  launch(args, {.kernel = "row_dot",
                .defines = std::move(defines),
                .width = batches.width,
                .groups = grid(count, 1),
                .bindings = {reads(whole_words(args.inputs[0])), reads(whole_words(args.inputs[1])),
                             reads(args.inputs[2]), writes(args.outputs[0])},
                .constants = {hal::word(count), hal::word(args.call.inputs[2].dim(1)), hal::word(d)}});
}

kernels::Variant packs_variant(std::string about, decltype(kernels::Variant::fit) fits,
                               decltype(kernels::Variant::alternatives) others,
                               decltype(kernels::Variant::encode) encodes) {
  kernels::Variant variant = simt_variant(std::move(about), fits, encodes, true);
  variant.alternatives = others;
  return variant;
}

}  // namespace

std::vector<kernels::OpVariants> moe_routing_ops() {
  return {{"expert_capacity", {simt_variant("one invocation per span and group", fit_limit, encode_limit)}},
          {"expert_groups",
           {simt_variant("counts by chunk and group, their sums, then places: no atomics", fit_group,
                         encode_group)}},
          {"moe_dispatch",
           {packs_variant("one invocation per pack of a row, which goes to all its slots", fit_move,
                          move_alternatives, encode_spread)}},
          {"moe_combine",
           {packs_variant("one invocation per pack of a row, summed in order", fit_move, move_alternatives,
                          encode_combine)}},
          {"row_dot",
           {packs_variant("one workgroup per product, folded by a fixed tree", fit_dot, dot_alternatives,
                          encode_dot)}}};
}

}  // namespace meshloom::backends::simt
