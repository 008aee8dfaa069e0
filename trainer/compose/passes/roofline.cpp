#include "trainer/compose/passes/roofline.h"

#include <algorithm>

#include "kernels/core/contract.h"

namespace meshloom::trainer {
namespace {

// On GPUs the variants that use a matrix unit are those with a self-test (kernels/core/self_test.h). TPU-like
// and Trainium-like chips multiply only on matrix units.
bool on_matrix_unit(const kernels::Variant& variant, hal::ProfileKind kind) {
  return variant.needs_self_test || kind == hal::ProfileKind::tpu || kind == hal::ProfileKind::trainium;
}

// The best floating-point rate that the profile lists.
double best_float_rate(const hal::Profile& profile) {
  double best = 0;
  for (const auto& [dtype, flops] : profile.peak_flops)
    if (dtype != hal::DType::i8) best = std::max(best, flops);
  return best;
}

}  // namespace

double unit_rate(const kernels::Choice& choice, const kernels::CallView& call,
                 const hal::DeviceInfo& device) {
  const hal::Profile& profile = device.profile;
  const bool widened = choice.params.count(kernels::kF32Fallback) > 0 || call.inputs.empty();
  const hal::DType dtype = widened ? hal::DType::f32 : call.inputs[0].dtype;
  const double own = profile.flops(dtype), f32 = profile.flops(hal::DType::f32);
  if (on_matrix_unit(*choice.variant, profile.kind))
    return own > 0 ? own : std::max(f32, best_float_rate(profile));
  if (profile.kind != hal::ProfileKind::host || dtype == hal::DType::f32) return f32;
  // The processor has units for 16-bit types, whose rate its profile does not list unless a user added it.
  const bool faster = device.backend == "cpu" &&
                      (device.has("amx-bf16") || device.has("amx-int8") || device.has("bf16-products"));
  return own > 0 ? own : faster ? 0 : f32;
}

double host_link_rate(const hal::Profile& profile) {
  for (const hal::Link& link : profile.links)
    if (link.name.starts_with("PCIe")) return link.bytes_per_second;
  return 0;
}

double roofline_seconds(const kernels::Choice& choice, const kernels::CallView& call,
                        const hal::DeviceInfo& device) {
  const kernels::Contract& contract = *choice.variant->contract;
  if (contract.name == "transfer")
    if (const double rate = host_link_rate(device.profile); rate > 0)
      return static_cast<double>(call.inputs[0].bytes()) / rate;
  const double rate = unit_rate(choice, call, device), bandwidth = device.profile.memory_bytes_per_second;
  double seconds = 0;
  if (rate > 0) seconds = contract.flops(call) / rate;
  if (bandwidth > 0) seconds = std::max(seconds, contract.bytes(call) / bandwidth);
  return seconds;
}

}  // namespace meshloom::trainer
