// Attention over the pages of a cache.
#include "kernels/paged_attention/paged_attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::PagedAttentionDims;

// How the kernel is compiled for a call.
struct Shape {
  std::int64_t width, keys, heads;  // invocations, keys of each in a tile, query heads of a workgroup
};

constexpr std::int64_t kWidest = 8;  // numbers of a pack

std::int64_t shared_bytes(const PagedAttentionDims& d, const Shape& s, std::int64_t pack) {
  return 4 * (s.heads * d.d + (s.heads + 1) * s.width * s.keys + s.heads * s.width + s.width * pack + 16);
}

Shape shape_of(const PagedAttentionDims& d, const hal::DeviceInfo& target) {
  constexpr std::int64_t kMaxHeads = 8, kScores = 16;  // of an invocation, in registers
  const std::int64_t width = target.is_cpu ? 8 : std::min<std::int64_t>(64, max_invocations(target));
  std::int64_t heads = std::min(kMaxHeads, d.group());
  const auto shape = [&] { return Shape{width, std::clamp<std::int64_t>(kScores / heads, 1, 4), heads}; };
  while (d.group() % heads != 0 || (heads > 1 && shared_bytes(d, shape(), kWidest) > workgroup_bytes(target)))
    --heads;
  return shape();
}

// Of one invocation, over all loops.
double iterations(const PagedAttentionDims& d, const Shape& s, std::int64_t pack) {
  const std::int64_t tile = s.width * s.keys, parts = std::max<std::int64_t>(1, s.width * pack / d.dv);
  return static_cast<double>(ceil_div(d.attended_keys(), tile) + 1) *
         static_cast<double>(d.d / pack + ceil_div(tile, parts) + 2 * s.heads * s.keys + 8);
}

bool needs_both(const PagedAttentionDims& d) { return d.sink >= 0 && d.slopes >= 0; }

// The three inputs of integers, one behind another, where scales take their bindings.
std::int64_t joined_words(const PagedAttentionDims& d) { return d.r * d.m + 2 * d.r + 1; }
std::int64_t modifier_bytes(const PagedAttentionDims& d) { return needs_both(d) ? aligned(2 * d.h * 4) : 0; }

// Pools of integers as floats, as many as there are codes: the kernel reads packs of their numbers.
std::vector<kernels::TensorType> as_floats(const CallView& call, const PagedAttentionDims& d) {
  std::vector<kernels::TensorType> inputs(call.inputs.begin(), call.inputs.end());
  for (const auto& [pool, features] :
       {std::pair{int{PagedAttentionDims::kKPool}, d.d}, {d.v_pool, d.value_row()}})
    if (d.k_scales >= 0)
      inputs[static_cast<std::size_t>(pool)] = {
          hal::DType::f32, {d.p, d.page, d.kv, d.stored(features) * (d.pool == hal::DType::u8 ? 2 : 1)}};
  return inputs;
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const PagedAttentionDims d = kernels::paged_attention_dims(call);
  const std::vector<kernels::TensorType> inputs = as_floats(call, d);
  Fit found =
      fit_packs({call.op, inputs, call.outputs, call.attrs}, target, std::array{d.d, d.dv}, HostForm::packs);
  if (!found.ok) return found;
  const Shape shape = shape_of(d, target);
  const std::int64_t pack = found.params.at("pack");
  if (const std::int64_t bytes = shared_bytes(d, shape, pack); bytes > workgroup_bytes(target))
    return Fit::no("queries and weights of a workgroup need " + std::to_string(bytes) + " bytes of " +
                   std::to_string(workgroup_bytes(target)));
  if (std::string reason = unsupported_iterations(target, iterations(d, shape, pack)); !reason.empty())
    return Fit::no(std::move(reason));
  found.params["tile_k"] = shape.width * shape.keys;
  found.workspace_bytes = modifier_bytes(d) + (d.k_scales >= 0 ? 4 * joined_words(d) : 0);
  return found;
}

void encode(const EncodeArgs& args) {
  const PagedAttentionDims d = kernels::paged_attention_dims(args.call);
  const Shape shape = shape_of(d, args.device.info());
  const auto input = [&](int index) { return reads(args.inputs[static_cast<std::size_t>(index)]); };
  // Kernels have eight bindings at most: sink and slopes share one.
  hal::Binding modifiers = input(d.sink >= 0 ? d.sink : d.slopes >= 0 ? d.slopes : d.lengths);
  if (needs_both(d)) {
    modifiers = reads(args.workspace);
    modifiers.bytes = 2 * d.h * 4;
    hal::Binding into = writes(modifiers);
    into.bytes = d.h * 4;
    for (const int index : {d.sink, d.slopes}) {
      args.commands.copy(input(index), into, args.label);
      into.offset += into.bytes;
    }
    args.commands.barrier();
  }
  hal::Binding table = input(d.page_table), starts = input(d.query_starts), lengths = input(d.lengths);
  if (d.k_scales >= 0) {
    hal::Binding joined = slice(args.workspace, modifier_bytes(d), 4 * joined_words(d));
    hal::Binding into = writes(joined);
    for (const hal::Binding& part : {table, starts, lengths}) {
      into.bytes = part.bytes;
      args.commands.copy(part, into, args.label);
      into.offset += into.bytes;
    }
    args.commands.barrier();
    table = reads(joined);
    starts = input(d.k_scales), lengths = input(d.v_scales);
  }
  const std::int64_t pack = args.choice.params.at("pack"), items = d.n * (d.h / shape.heads);
  std::vector<hal::Define> defines = pack_defines(args.call, pack);
  for (hal::Define& item :
       std::vector{dtype_define("Q_TYPE", args.call.inputs[PagedAttentionDims::kQ]),
                   dtype_define("POOL_TYPE", {d.k_scales >= 0 ? hal::DType::f32 : d.pool, {}}),
                   define("CODES", d.pool == hal::DType::i8   ? 8
                                   : d.pool == hal::DType::u8 ? 4
                                                              : 0),
                   define("D", d.d), define("DV", d.dv), define("V_FEATURES", d.value_row()),
                   define("GROUP", d.group()), define("HEADS", shape.heads), define("KEYS", shape.keys)})
    defines.push_back(std::move(item));
  const std::int64_t left = d.left < kernels::kUnlimited
                                ? std::min<std::int64_t>(d.left, std::numeric_limits<std::int32_t>::max())
                                : -1;
  const std::int64_t present = (d.sink >= 0 ? 1 : 0) | (d.slopes >= 0 ? 2 : 0) | (d.ring ? 4 : 0);
  const auto words = [&](int index) {
    return reads(whole_words(args.inputs[static_cast<std::size_t>(index)]));
  };
  launch(args,
         {.kernel = "paged_attention",
          .defines = std::move(defines),
          .width = static_cast<std::uint32_t>(shape.width),
          .groups = grid(items, 1),
          .bindings = {words(PagedAttentionDims::kQ), words(PagedAttentionDims::kKPool), words(d.v_pool),
                       table, starts, lengths, modifiers, writes(whole_words(args.outputs[0]))},
          .constants = {hal::word(d.n), hal::word(d.kv), hal::word(d.page), hal::word(d.p), hal::word(d.r),
                        hal::word(d.m), hal::word(left), hal::word(present),
                        hal::word(static_cast<float>(d.scale)), hal::word(static_cast<float>(d.soft_cap)),
                        hal::word(d.block)}});
}

}  // namespace

std::vector<kernels::OpVariants> paged_attention_ops() {
  kernels::Variant variant = simt_variant(
      "one workgroup per query and kv head, its keys over the invocations; a query's bits depend on no other "
      "query",
      fit, encode, true);
  variant.name = "pages";
  return {{"paged_attention", {std::move(variant)}}};
}

}  // namespace meshloom::backends::simt
