#include "backends/simt/host/launch.h"

#include "backends/simt/variants.h"

#include <algorithm>
#include <utility>

namespace meshloom::backends::simt {
namespace {

constexpr std::int64_t kMostIndex = (std::int64_t{1} << 31) - 1;
constexpr std::uint32_t kGridRow = 32768;  // every driver takes 65535 groups per dimension

// How a FOR_EACH kernel is cut: invocations per workgroup, items per invocation.
struct Share {
  std::uint32_t width, per;
};
Share share_of(const hal::DeviceInfo& target) {
  if (!target.is_cpu) return {static_cast<std::uint32_t>(std::min(256, target.limits.max_workgroup)), 1};
  if (target.backend == "opencl") return {1, 4096};
  return {static_cast<std::uint32_t>(std::max(target.limits.subgroup, 1)), 32};
}

}  // namespace

std::string unfit(const kernels::CallView& call) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types) {
      if (type.dtype != hal::DType::f32 && type.dtype != hal::DType::i32)
        return "takes f32 and i32 only, not " + std::string(hal::to_string(type.dtype));
    }
  return indexable(call);
}

std::string indexable(const kernels::CallView& call) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types)
      if (type.elements() > kMostIndex) return "indexes with 32 bits, but a tensor has " + to_string(type);
  return {};
}

kernels::Fit fit_indexable(const kernels::CallView& call, const hal::DeviceInfo&) {
  const std::string reason = indexable(call);
  return reason.empty() ? kernels::Fit::yes() : kernels::Fit::no(reason);
}

std::string no_halves(const kernels::CallView& call, const hal::DeviceInfo& target) {
  if (target.backend == "vulkan")
    for (const char* feature : {"f16-storage", "i16-arithmetic"})
      if (!target.has(feature))
        return std::string("needs ") + feature + " for 16-bit floats, which the driver does not have";
  return indexable(call);
}

std::int64_t dtype_code(hal::DType dtype) {
  return dtype == hal::DType::f32 ? 0 : dtype == hal::DType::bf16 ? 1 : 2;
}

bool on_llvmpipe(const hal::DeviceInfo& target) { return target.name.find("llvmpipe") != std::string::npos; }

std::int64_t most_iterations(const hal::DeviceInfo& target) {
  return on_llvmpipe(target) ? 60000 : kMostIndex;
}

std::string too_long(const hal::DeviceInfo& target, double iterations) {
  if (iterations <= static_cast<double>(most_iterations(target))) return {};
  return "one invocation would run about " + std::to_string(static_cast<std::int64_t>(iterations)) +
         " loop iterations, and llvmpipe ends loops after 65535";
}

std::int64_t workgroup_bytes(const hal::DeviceInfo& target) {
  const std::int64_t allowed = target.profile.scratch_bytes, bytes = target.limits.max_local_bytes;
  return allowed > 0 ? std::min(bytes, allowed) : bytes;
}

std::int64_t most_invocations(const hal::DeviceInfo& target) {
  const std::int64_t allowed = target.profile.max_workgroup, most = target.limits.max_workgroup;
  return allowed > 0 ? std::min(most, allowed) : most;
}

std::uint32_t elementwise_width(const hal::DeviceInfo& target) {
  return static_cast<std::uint32_t>(std::min(target.is_cpu ? 64 : 256, target.limits.max_workgroup));
}

std::uint32_t row_width(const hal::DeviceInfo& target) {
  return static_cast<std::uint32_t>(std::min(target.is_cpu ? 8 : 128, target.limits.max_workgroup));
}

std::array<std::uint32_t, 3> grid(std::int64_t count, std::uint32_t width) {
  const std::int64_t groups = (count + width - 1) / width;
  const auto x = static_cast<std::uint32_t>(std::min<std::int64_t>(groups, kGridRow));
  return {x, static_cast<std::uint32_t>((groups + x - 1) / x), 1};
}

hal::Binding reading(hal::Binding binding) {
  binding.access = hal::Access::read;
  return binding;
}

hal::Binding writing(hal::Binding binding) {
  binding.access = hal::Access::write;
  return binding;
}

hal::Binding part(hal::Binding binding, std::int64_t offset, std::int64_t bytes) {
  binding.offset += offset;
  binding.bytes = bytes;
  return binding;
}

hal::Binding whole_words(hal::Binding binding) {
  binding.bytes = (binding.bytes + 3) / 4 * 4;
  return binding;
}

void launch(const kernels::EncodeArgs& args, const Launch& wanted) {
  Launch launch = wanted;
  if (launch.each > 0) {
    const Share share = share_of(args.device.info());
    launch.width = share.width;
    launch.groups = grid(launch.each, share.width * share.per);
    launch.defines.push_back({"PER", std::to_string(share.per)});
  }
  hal::ExecutableSpec spec{launch.kernel,
                           launch.defines,
                           {launch.width, 1, 1},
                           {},
                           static_cast<std::uint32_t>(launch.constants.size())};
  spec.subgroup = launch.subgroup;
  for (const hal::Binding& binding : launch.bindings) spec.bindings.push_back(binding.access);
  args.commands.dispatch(args.device.load(spec), launch.groups, launch.bindings, launch.constants,
                         args.label);
}

void launch_rows(const kernels::EncodeArgs& args, std::int64_t items, Launch wanted) {
  wanted.width = elementwise_width(args.device.info());
  wanted.groups = grid(items, wanted.width);
  launch(args, wanted);
}

void add_small(kernels::Catalog& catalog, const std::string& backend, const std::string& op,
               const std::string& about,
               kernels::Fit (*fit)(const kernels::CallView&, const hal::DeviceInfo&),
               void (*encode)(const kernels::EncodeArgs&), bool low_precision) {
  catalog.add(kernels::Variant{.op = op,
                               .backend = backend,
                               .name = "simt",
                               .kinds = {},
                               .rank = 1,
                               .about = about,
                               .fit = fit,
                               .encode = encode,
                               .low_precision = low_precision});
}

void add_simt_small_op_variants(kernels::Catalog& catalog, const std::string& backend) {
  for (auto* add : {add_elementwise,
                    add_norms,
                    add_reductions,
                    add_embeddings,
                    add_cross_entropy_ops,
                    add_rope_op,
                    add_layouts,
                    add_join_features_ops,
                    add_casts,
                    add_optimizers,
                    add_softmax_ops,
                    add_top_k_ops,
                    add_row_groups_ops,
                    add_grouped_matmul_ops,
                    add_dropout_op,
                    add_nf4_ops,
                    add_int8_ops,
                    add_rounding_ops,
                    add_mask_bits_op,
                    add_relative_bias_ops})
    add(catalog, backend);
}

}  // namespace meshloom::backends::simt
