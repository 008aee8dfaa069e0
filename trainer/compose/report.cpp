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

std::vector<std::string> knobs(const Plan& plan, const ComposeOptions& options) {
  std::vector<std::string> list;
  const bool training = plan.programs.count("train") || plan.programs.count("accumulate");
  if (training) {
    if (options.rows() > 1)
      list.push_back(fmt::format("more accumulation (now {}) for smaller micro-batches (now {} rows)",
                                 options.accumulation, options.rows()));
    if (options.batch > 1) list.push_back(fmt::format("a smaller batch (now {})", options.batch));
    if (options.sequence > 1) list.push_back(fmt::format("a shorter sequence (now {})", options.sequence));
    const bool recomputing = std::any_of(options.remat.begin(), options.remat.end(),
                                         [](const RematRule& rule) { return !rule.save; });
    if (!recomputing) list.push_back("rematerialisation (now everything is saved)");
  }
  if (options.logits_batch > 0)
    list.push_back(
        fmt::format("smaller logits (now {} x {})", options.logits_batch, options.logits_sequence));
  list.push_back("a smaller model or vocabulary");
  list.push_back("a device or profile with more memory");
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
  if (source == device.profile.sources.end() || !source->second.starts_with("free")) return "";
  return " (" + source->second + ")";
}

void require_memory(const Plan& plan, const ComposeOptions& options, const hal::DeviceInfo& device) {
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
      fmt::format("the peak must not exceed the {} ({} bytes) there are{}; what would help: {}",
                  readable_bytes(limit), limit, memory_note(device), hal::join(knobs(plan, options))),
      fmt::format("a peak of {} ({} bytes): {}; largest: {}", readable_bytes(plan.peak_bytes),
                  plan.peak_bytes, hal::join(parts), hal::join(tensors)));
}

}  // namespace meshloom::trainer
