// Rows to their groups and back. Sorting without atomics: counts by chunk and group, their sums, then places.
#include "kernels/moe_routing/moe_routing.h"
#include "backends/simt/host/launch.h"

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
Fit fit(const CallView& call, const hal::DeviceInfo& target) { return fit_loops(call, target, 0); }
Fit fit_limit(const CallView& call, const hal::DeviceInfo& target) {
  return fit_loops(call, target, call.attrs.integer("span") * call.inputs[0].dim(1));
}
Fit fit_group(const CallView& call, const hal::DeviceInfo& target) {
  return fit_loops(call, target, std::max(chunks_of(call), all_groups(call) + kChunk),
                   (chunks_of(call) + 1) * all_groups(call) * 4);
}
Fit fit_dot(const CallView& call, const hal::DeviceInfo& target) {
  return fit_loops(call, target, call.inputs[0].dim(1));
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

void encode_move(const EncodeArgs& args, const char* kernel) {
  const bool weighted = args.inputs.size() > 2;
  const std::int64_t count = args.call.outputs[0].elements();
  launch(args, {.kernel = kernel,
                .bindings = {reads(args.inputs[0]), reads(args.inputs[1]),
                             reads(args.inputs[weighted ? 2 : 0]), writes(args.outputs[0])},
                .constants = {hal::word(count), hal::word(args.call.inputs[1].dim(1)),
                              hal::word(args.call.inputs[0].dim(1)), hal::word(std::int64_t{weighted})},
                .items = count});
}
void encode_spread(const EncodeArgs& args) { encode_move(args, "moe_dispatch"); }
void encode_combine(const EncodeArgs& args) { encode_move(args, "moe_combine"); }

void encode_dot(const EncodeArgs& args) {
  const std::int64_t count = args.call.outputs[0].elements();
  launch_rows(args, count,
              {.kernel = "row_dot",
               .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]),
                            writes(args.outputs[0])},
               .constants = {hal::word(count), hal::word(args.call.inputs[2].dim(1)),
                             hal::word(args.call.inputs[0].dim(1))}});
}

}  // namespace

std::vector<kernels::OpVariants> moe_routing_ops() {
  return {{"expert_capacity", {simt_variant("one invocation per span and group", fit_limit, encode_limit)}},
          {"expert_groups",
           {simt_variant("counts by chunk and group, their sums, then places: no atomics", fit_group,
                         encode_group)}},
          {"moe_dispatch", {simt_variant("one invocation per element", fit, encode_spread)}},
          {"moe_combine", {simt_variant("one invocation per element, summed in order", fit, encode_combine)}},
          {"row_dot", {simt_variant("one invocation per product", fit_dot, encode_dot)}}};
}

}  // namespace meshloom::backends::simt
