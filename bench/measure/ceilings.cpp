#include "bench/measure/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <vector>

#include "bench/measure/clock.h"
#include "bench/measure/statistics.h"
#include "hal/error.h"
#include "trainer/execute/probe.h"

namespace meshloom::bench {
namespace {

constexpr int kTries = 20;
// Of the kernel that copies: invocations of a workgroup, the sixteen bytes that each copies, and the bytes of all.
constexpr std::uint32_t kCopyWidth = 256;
constexpr std::int32_t kCopyRounds = 4;
constexpr std::int64_t kCopyGroupBytes = 16 * kCopyWidth * kCopyRounds;
constexpr double kProbing = 0.4;  // seconds per ceiling: on a busy machine many tries are needed

// A copy as a command, or by a kernel, which a GPU may do faster.
void record_copy(hal::CommandList& list, hal::Device& device, hal::Buffer& from, hal::Buffer& to,
                 bool by_kernel) {
  const std::int64_t bytes = from.bytes();
  const hal::Binding source{&from, 0, bytes, hal::Access::read}, target{&to, 0, bytes, hal::Access::write};
  if (!by_kernel) return list.copy(source, target, "copy");
  const hal::ExecutableSpec spec{
      "probe_copy", {}, {kCopyWidth, 1, 1}, {hal::Access::read, hal::Access::write}, 1};
  list.dispatch(device.load(spec), {static_cast<std::uint32_t>(bytes / kCopyGroupBytes), 1, 1},
                std::vector{source, target}, std::vector{hal::word(std::int64_t{kCopyRounds})}, "copy");
}

double measure_copy(hal::Device& device) {
  std::int64_t bytes = std::clamp<std::int64_t>(2 * cache_bytes(device.info()), 64 << 20, 512 << 20);
  const hal::Limits& limits = device.info().limits;
  if (limits.max_allocation_bytes > 0) bytes = std::min(bytes, limits.max_allocation_bytes);
  const std::int64_t memory =
      device.runs_as_another() ? device.profile().memory_bytes : device.info().limits.memory_bytes;
  if (memory > 0) bytes = std::min(bytes, memory / 8);
  bytes = bytes / kCopyGroupBytes * kCopyGroupBytes;
  const auto from = device.allocate(bytes, "bench copy"), to = device.allocate(bytes, "bench copy");
  const auto fill = device.record("bench fill");
  fill->fill({from.get(), 0, bytes, hal::Access::write}, hal::word(1.0f), "fill");
  fill->finish();
  device.submit(*fill);
  // A GPU takes less time to copy so much than to begin and to end.
  const bool is_gpu = !device.info().is_cpu;
  const int copies = is_gpu ? 8 : 1;
  double best = 0;
  for (const bool by_kernel : {false, true}) {
    if (by_kernel && !is_gpu) continue;
    const auto list = device.record("bench copy");
    for (int i = 0; i < copies; ++i) {
      if (i > 0) list->barrier();
      record_copy(*list, device, *from, *to, by_kernel);
    }
    list->finish();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < 6 || (i < 100 && seconds_since(begin) < kProbing); ++i) {
      const double seconds = time([&] {
        device.submit(*list);
        device.wait();
      });
      if (i > 0)  // the first run allocates the pages
        best = std::max(best, 2.0 * copies * static_cast<double>(bytes) / seconds);
    }
  }
  return best;
}

// The dtype whose rate limits a call: matrix products may use a unit for their dtype, all else is computed in
// f32.
std::string unit_of(const std::string& op, const std::string& dtype) {
  const bool products = op.find("matmul") != std::string::npos || op.starts_with("flash_attention");
  return products ? dtype : "f32";
}

Ceilings measure_alone(hal::Device& device) {
  constexpr int kDispatches = 128;
  Ceilings result;
  result.flops = trainer::measure_multiply_adds(device, trainer::kMultiplyAdd, kTries, kProbing);
  if (device.info().has(trainer::kBf16Feature))
    result.bf16_flops = trainer::measure_multiply_adds(device, trainer::kMultiplyAddBf16, kTries, kProbing);
  result.bytes_per_second = measure_copy(device);
  const hal::Profile& profile = device.profile();
  const auto source = profile.sources.find("memory_bytes_per_second");
  if (source != profile.sources.end() && source->second.starts_with("measured"))
    result.bytes_per_second = std::max(result.bytes_per_second, profile.memory_bytes_per_second);
  trainer::Probe one(device, 1, 0, 1), many(device, 1, 0, kDispatches);
  std::vector<double> submits, dispatches;
  one.seconds(), many.seconds();
  for (int i = 0; i < 20; ++i) {
    submits.push_back(one.seconds());
    dispatches.push_back(many.seconds());
  }
  result.submit_seconds = median(submits);
  result.dispatch_seconds =
      std::max(0.0, (median(dispatches) - result.submit_seconds) / static_cast<double>(kDispatches - 1));
  return result;
}

}  // namespace

double Ceilings::flops_of(const std::string& op, const std::string& dtype) const {
  const bool products = op == "matmul" || op.starts_with("flash_attention");
  const double measured = products && dtype == "bf16" && bf16_flops > 0 ? bf16_flops : flops;
  const auto reached = max_reached.find(unit_of(op, dtype));
  return reached == max_reached.end() || measured <= 0 ? measured : std::max(measured, reached->second);
}

bool Ceilings::raise(const std::string& op, const std::string& dtype, double reached) {
  const double ceiling = flops_of(op, dtype);
  if (ceiling <= 0 || reached <= ceiling) return false;
  max_reached[unit_of(op, dtype)] = reached;
  return true;
}

double Ceilings::roofline(double flops_per_byte) const {
  return std::min(flops, flops_per_byte * bytes_per_second);
}

Ceilings best(const Ceilings& a, const Ceilings& b) {
  Ceilings result = a;
  result.flops = std::max(a.flops, b.flops);
  result.bf16_flops = std::max(a.bf16_flops, b.bf16_flops);
  result.bytes_per_second = std::max(a.bytes_per_second, b.bytes_per_second);
  result.submit_seconds = std::min(a.submit_seconds, b.submit_seconds);
  result.dispatch_seconds = std::min(a.dispatch_seconds, b.dispatch_seconds);
  for (const auto& [dtype, reached] : b.max_reached)
    result.max_reached[dtype] = std::max(result.max_reached[dtype], reached);
  return result;
}

Ceilings measure_ceilings(hal::Device& device, const hal::Registry& registry) {
  Ceilings result = measure_alone(device);
  result.how = "multiply-adds in registers, and copies beyond the caches, on the device itself";
  if (!device.info().is_cpu || device.info().backend == "cpu") return result;
  const std::unique_ptr<hal::Device> processor = registry.open("cpu");
  const Ceilings host = measure_alone(*processor);
  if (host.flops > result.flops)
    result.how = fmt::format(
        "rates that the cpu backend reaches on the processor under the driver; the driver itself "
        "reached {:.3g} GFLOP/s and {:.3g} GB/s",
        result.flops * 1e-9, result.bytes_per_second * 1e-9);
  result.flops = std::max(result.flops, host.flops);
  result.bytes_per_second = std::max(result.bytes_per_second, host.bytes_per_second);
  return result;
}

std::int64_t cache_bytes(const hal::DeviceInfo& device) {
  if (!device.is_cpu) return 256 << 20;  // no known GPU has more
  std::int64_t largest = 0;
  for (int i = 0; i < 5; ++i) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", i));
    std::string text;
    if (!(file >> text)) continue;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) continue;
    largest = std::max(largest, *end == 'M' ? value << 20 : *end == 'K' ? value << 10 : value);
  }
  return largest > 0 ? std::min<std::int64_t>(largest, 256 << 20) : 64 << 20;
}

Evictor::Evictor(hal::Device& device) : device_(device) {
  std::int64_t bytes = 2 * cache_bytes(device.info());
  const hal::Limits& limits = device.info().limits;
  if (limits.max_allocation_bytes > 0) bytes = std::min(bytes, limits.max_allocation_bytes);
  buffer_ = device.allocate(bytes / 4 * 4, "bench eviction");
  list_ = device.record("bench eviction");
  list_->fill({buffer_.get(), 0, buffer_->bytes(), hal::Access::write}, hal::word(0.0f), "evict");
  list_->finish();
}

void Evictor::evict() {
  device_.submit(*list_);
  device_.wait();
}

}  // namespace meshloom::bench
