// Matmul for Vulkan on the host's cores, for few columns and a long K.
#include "backends/simt/kernels/matmul/matmul.h"

namespace meshloom::backends::vulkan {
namespace {

using kernels::Fit;

constexpr std::int64_t kRows = 4;  // of C, per subgroup

std::array<std::int64_t, 3> groups(const kernels::MatmulDims& d) {
  return {hal::ceil_div(d.m, kRows), 1, d.g};
}

Fit fit(const kernels::CallView& call, const hal::DeviceInfo& target) {
  if (!target.is_cpu) return Fit::no("is only for Vulkan on a CPU");
  if (!target.has("subgroup-arithmetic"))
    return Fit::no("needs sums over subgroups, which the driver does not support");
  const kernels::MatmulDims d = kernels::matmul_dims(call);
  if (d.trans_a || !d.trans_b) return Fit::no("needs A of (M, K) and B of (N, K)");
  // With more columns a subgroup that holds a block of C reads A less often.
  constexpr std::int64_t kMaxColumns = 8, kMinDepth = 256;
  if (d.n > kMaxColumns || d.k < kMinDepth)
    return Fit::no("other variants are faster for more than " + std::to_string(kMaxColumns) +
                   " columns or K below " + std::to_string(kMinDepth) + "; here are " + std::to_string(d.n) +
                   " and " + std::to_string(d.k));
  if (const std::string reason = simt::unsupported_matmul(call, target, groups(d)); !reason.empty())
    return Fit::no(reason);
  const std::int64_t lanes = target.limits.subgroup;
  const std::int64_t depth = simt::k_depth(target, d.k, lanes, 1, 1);
  return Fit::yes({{"lanes", lanes}, {"depth", depth}}, simt::sums_bytes(d, depth));
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::MatmulDims d = kernels::matmul_dims(args.call);
  for (const simt::KPart& part : simt::k_parts(args, d, args.choice.params.at("depth"), args.workspace)) {
    if (part.begin > 0) args.commands.barrier();
    simt::launch(args, {.kernel = "matmul_subgroup_dot",
                        .defines = {part.activation, simt::define("ROWS", kRows), simt::define("N", d.n)},
                        .width = static_cast<std::uint32_t>(args.choice.params.at("lanes")),
                        .groups = simt::matmul_groups(groups(d)),
                        .bindings = part.bindings,
                        .constants = {hal::word(d.m), hal::word(d.k), part.flags, hal::word(part.begin),
                                      hal::word(part.end)}});
  }
}

}  // namespace

kernels::Variant matmul_subgroup_dot() {
  return {.name = "subgroup_dot",
          .kinds = {hal::ProfileKind::host},
          .about = "few columns: a subgroup's lanes share K, and each row of A is read once",
          .fit = fit,
          .encode = encode};
}

}  // namespace meshloom::backends::vulkan
