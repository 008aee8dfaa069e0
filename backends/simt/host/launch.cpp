#include "backends/simt/host/launch.h"

#include <algorithm>
#include <utility>

#include "backends/simt/host/aliasing.h"
#include "backends/simt/host/quirks.h"
#include "hal/math.h"

namespace meshloom::backends::simt {
namespace {

constexpr std::int64_t kMaxIndex = (std::int64_t{1} << 31) - 1;
constexpr std::uint32_t kGridRow = 32768;  // every driver accepts 65535 groups per dimension

}  // namespace

std::string unsupported_dtype(const kernels::CallView& call) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types) {
      if (type.dtype != hal::DType::f32 && type.dtype != hal::DType::i32)
        return "takes f32 and i32 only, not " + std::string(hal::to_string(type.dtype));
    }
  return unsupported_size(call);
}

std::string unsupported_size(const kernels::CallView& call) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types)
      if (type.elements() > kMaxIndex) return "indexes with 32 bits, but a tensor has " + to_string(type);
  return {};
}

kernels::Fit fit_any_dtype(const kernels::CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_size(call);
  return reason.empty() ? kernels::Fit::yes() : kernels::Fit::no(reason);
}

std::string unsupported_f16(const kernels::CallView& call, const hal::DeviceInfo& target) {
  if (target.backend == "vulkan")
    for (const char* feature : {"f16-storage", "i16-arithmetic"})
      if (!target.has(feature))
        return std::string("needs ") + feature + " for 16-bit floats, which the driver does not support";
  return unsupported_size(call);
}

std::int64_t dtype_code(hal::DType dtype) {
  return dtype == hal::DType::f32 ? 0 : dtype == hal::DType::bf16 ? 1 : 2;
}

std::int64_t max_iterations(const hal::DeviceInfo& target) {
  const std::int64_t limit = quirks_of(target.name).max_loop_iterations;
  return limit > 0 ? limit : kMaxIndex;
}

std::string unsupported_iterations(const hal::DeviceInfo& target, double iterations) {
  const std::int64_t limit = max_iterations(target);
  if (iterations <= static_cast<double>(limit)) return {};
  const std::string_view driver = quirks_of(target.name).driver;
  return "one invocation would run about " + std::to_string(static_cast<std::int64_t>(iterations)) +
         " loop iterations, but " + std::string(driver.empty() ? "a kernel" : driver) + " runs at most " +
         std::to_string(limit);
}

std::int64_t workgroup_bytes(const hal::DeviceInfo& target) {
  const std::int64_t allowed = target.profile.scratch_bytes, bytes = target.limits.max_local_bytes;
  return allowed > 0 ? std::min(bytes, allowed) : bytes;
}

std::int64_t max_invocations(const hal::DeviceInfo& target) {
  const std::int64_t allowed = target.profile.max_workgroup, limit = target.limits.max_workgroup;
  return allowed > 0 ? std::min(limit, allowed) : limit;
}

bool has_narrow_subgroups(const hal::DeviceInfo& target) {
  return !target.is_cpu && target.limits.subgroup > 0 && target.limits.subgroup < 32;
}

bool needs_rolled_sums(const hal::DeviceInfo& target) {
  return target.backend == "vulkan" && target.driver.starts_with("Intel open-source Mesa driver");
}

bool has_rolled_sums(const std::map<std::string, std::int64_t>& params, const hal::DeviceInfo& target) {
  const auto found = params.find("rolled");
  return found != params.end() ? found->second != 0 : needs_rolled_sums(target);
}

Distribution distribution_of(const hal::DeviceInfo& target) {
  if (!target.is_cpu) return {static_cast<std::uint32_t>(std::min(256, target.limits.max_workgroup)), 1};
  if (target.backend == "opencl") return {1, 4096};
  return {static_cast<std::uint32_t>(std::max(target.limits.subgroup, 1)), 32};
}

std::uint32_t elementwise_width(const hal::DeviceInfo& target) {
  return static_cast<std::uint32_t>(std::min(target.is_cpu ? 64 : 256, target.limits.max_workgroup));
}

std::uint32_t row_width(const hal::DeviceInfo& target) {
  return static_cast<std::uint32_t>(std::min(target.is_cpu ? 8 : 128, target.limits.max_workgroup));
}

std::array<std::uint32_t, 3> grid(std::int64_t count, std::uint32_t width) {
  const std::int64_t groups = hal::ceil_div(count, width);
  const auto x = static_cast<std::uint32_t>(std::min<std::int64_t>(groups, kGridRow));
  return {x, static_cast<std::uint32_t>(hal::ceil_div(groups, x)), 1};
}

hal::Define dot_define(const hal::DeviceInfo& target) {
  constexpr int kNone = 0, kByApi = 1, kByPtx = 2;
  if (!target.has("i8-dot")) return define("DOT", kNone);
  const bool ptx = target.backend == "opencl" && target.vendor.find("NVIDIA") != std::string::npos;
  return define("DOT", ptx ? kByPtx : kByApi);
}

hal::Binding whole_words(hal::Binding binding) {
  binding.bytes = hal::round_up(binding.bytes, 4);
  return binding;
}

void launch(const kernels::EncodeArgs& args, const Launch& wanted) {
  Launch launch = wanted;
  if (launch.items > 0) {
    const Distribution distribution = distribution_of(args.device.info());
    const auto per = static_cast<std::uint32_t>(std::max<std::int64_t>(distribution.per / launch.pack, 1));
    launch.width = distribution.width;
    launch.groups = grid(launch.items, distribution.width * per);
    launch.defines.push_back(define("PER", per));
  }
  hal::ExecutableSpec spec{launch.kernel,
                           launch.defines,
                           {launch.width, 1, 1},
                           {},
                           static_cast<std::uint32_t>(launch.constants.size())};
  spec.subgroup = launch.subgroup;
  for (const hal::Binding& binding : launch.bindings) spec.bindings.push_back(binding.access);
  if (args.device.info().backend == "vulkan")
    for (hal::Define& aliased : alias_defines(aliased_bindings(launch.bindings) | launch.aliased))
      spec.defines.push_back(std::move(aliased));
  args.commands.dispatch(args.device.load(spec), launch.groups, launch.bindings, launch.constants,
                         args.label);
}

void launch_rows(const kernels::EncodeArgs& args, std::int64_t items, Launch wanted) {
  wanted.width = elementwise_width(args.device.info());
  wanted.groups = grid(items, wanted.width);
  launch(args, wanted);
}

kernels::Variant simt_variant(std::string about, decltype(kernels::Variant::fit) fit,
                              decltype(kernels::Variant::encode) encode, bool low_precision) {
  return {.name = "simt",
          .about = std::move(about),
          .fit = fit,
          .encode = encode,
          .low_precision = low_precision,
          .row_exact = true};
}

}  // namespace meshloom::backends::simt
