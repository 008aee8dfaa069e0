#include "trainer/compose/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kTensorsNamed = 4;

// The options that reduce a class of memory, best first.
std::vector<std::string> knobs_of(const std::string& memory_class, const Plan& plan,
                                  const ComposeOptions& options) {
  const bool all_trainable = plan.trainable_parameter_count() == plan.parameter_count();
  if (memory_class == "optimizer" || memory_class == "gradients") {
    std::vector<std::string> list;
    if (all_trainable) list.push_back("adapters on frozen weights (the modifier Adapt)");
    list.push_back("an optimizer with less state (Adafactor, Lion)");
    return list;
  }
  if (memory_class == "parameters")
    return {all_trainable ? "4-bit weights under adapters (the modifiers Quantize and Adapt)"
                          : "4-bit weights (the modifier Quantize)"};
  if (memory_class != "activations" && memory_class != "workspace") return {};
  std::vector<std::string> list;
  const bool recomputing = std::any_of(options.remat.begin(), options.remat.end(), [](const RematRule& rule) {
    return rule.policy != RematPolicy::save;
  });
  if (!recomputing) list.push_back("rematerialization (now all activations are saved)");
  list.push_back("ChunkedLoss, where the loss is not in slices");
  if (options.dtype == kernels::DType::f32) list.push_back("16-bit activations (dtype, now f32)");
  if (options.rows() > 1)
    list.push_back(fmt::format("more accumulation (now {}) for smaller micro-batches (now {} rows)",
                               options.accumulation, options.rows()));
  if (options.batch > 1) list.push_back(fmt::format("a smaller batch (now {})", options.batch));
  if (options.sequence > 1) list.push_back(fmt::format("a shorter sequence (now {})", options.sequence));
  return list;
}

// The options for the largest class first; `classes` are sorted by size.
std::vector<std::string> knobs(const Plan& plan, const ComposeOptions& options,
                               const std::vector<std::pair<std::string, std::int64_t>>& classes) {
  std::vector<std::string> list;
  const auto add = [&](std::string text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
  };
  if (!plan.steps.update.empty())
    for (const auto& [name, bytes] : classes)
      for (std::string& text : knobs_of(name, plan, options)) add(std::move(text));
  if (options.logits_batch > 0)
    add(fmt::format("smaller logits (now {} x {})", options.logits_batch, options.logits_sequence));
  if (!options.decode.tokens.empty()) {
    add(fmt::format("a shorter sequence (now {})", options.decode.length));
    add("a cache of fewer bits (PagedCache{codec=Plain{dtype=bf16}})");
  }
  add("a smaller model or vocabulary");
  add("a device or profile with more memory");
  return list;
}

}  // namespace

std::string readable_bytes(std::int64_t bytes) {
  constexpr std::array<std::pair<double, std::string_view>, 3> kUnits{
      {{0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}}};
  for (const auto& [unit, name] : kUnits)
    if (static_cast<double>(bytes) >= unit)
      return fmt::format("{:.2f} {}", static_cast<double>(bytes) / unit, name);
  return fmt::format("{} B", bytes);
}

std::int64_t memory_limit(const hal::DeviceInfo& device) {
  const std::int64_t driver = device.limits.memory_bytes, profile = device.profile.memory_bytes;
  if (driver <= 0 || profile <= 0) return std::max(driver, profile);
  return std::min(driver, profile);
}

std::string memory_note(const hal::DeviceInfo& device) {
  const auto source = device.profile.sources.find("memory_bytes");
  if (source == device.profile.sources.end() ||
      !(source->second.starts_with("free") || source->second.starts_with("limited")))
    return "";
  return " (" + source->second + ")";
}

void require_memory(const Plan& plan, const ComposeOptions& options, const hal::DeviceInfo& device) {
  if (const std::int64_t limit = device.host ? memory_limit(*device.host) : 0;
      limit > 0 && plan.host.peak_bytes > limit)
    throw hal::OutOfMemory(
        "out of memory on the host (offload_optimizer, or remat rules with policy offload)",
        fmt::format("its part of the plan must not exceed {} ({} bytes)", readable_bytes(limit), limit),
        fmt::format("{} ({} bytes)", readable_bytes(plan.host.peak_bytes), plan.host.peak_bytes));
  const std::int64_t limit = memory_limit(device);
  if (limit <= 0 || plan.peak_bytes <= limit) return;
  std::vector<std::pair<std::string, std::int64_t>> classes(plan.memory.begin(), plan.memory.end());
  std::stable_sort(classes.begin(), classes.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts, tensors;
  for (const auto& [name, bytes] : classes)
    if (bytes > 0) parts.push_back(name + " " + readable_bytes(bytes));
  for (const LargeTensor& tensor : plan.largest)
    if (tensors.size() < kTensorsNamed)
      tensors.push_back("'" + tensor.name + "' " + readable_bytes(tensor.bytes));
  throw hal::OutOfMemory(
      "out of memory on device " + plan.device + " as " + plan.profile,
      fmt::format("the peak must not exceed the available {} ({} bytes){}; what would help: {}",
                  readable_bytes(limit), limit, memory_note(device),
                  hal::join(knobs(plan, options, classes))),
      fmt::format("a peak of {} ({} bytes): {}; largest: {}", readable_bytes(plan.peak_bytes),
                  plan.peak_bytes, hal::join(parts), hal::join(tensors)));
}

}  // namespace meshloom::trainer
