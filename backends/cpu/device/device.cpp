#include "backends/cpu/device/device.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "backends/cpu/backend.h"
#include "backends/cpu/device/host.h"
#include "backends/cpu/device/memory.h"
#include "backends/cpu/gemm/amx.h"
#include "backends/cpu/gemm/matmul_micro.h"

namespace meshloom::backends::cpu {
namespace {

hal::DeviceInfo describe() {
  const Host host = probe_host();
  const int workers = wanted_workers(host);
  double flops = 0, bytes_per_second = 0;
  const std::optional<CpuRates> given = given_rates();
  if (given) {
    flops = given->core_flops * std::min(workers, host.threads);
    bytes_per_second = given->bytes_per_second;
  } else {
    ThreadPool pool(workers);
    flops = measure_flops(pool, host.threads);
    bytes_per_second = measure_read_bandwidth(pool, host.l3_bytes);
  }
  hal::DeviceInfo info;
  info.id = info.backend = "cpu";
  info.name = host.name + ", " + std::to_string(workers) + (workers == 1 ? " thread" : " threads");
  info.vendor = host.vendor;
  info.driver = "meshloom cpu 1, " + host.target;
  info.api = "C++20";
  info.is_cpu = true;
  info.timestamps = true;
  info.profile = host_profile(host, workers, flops, bytes_per_second, !given);
  hal::Limits& limits = info.limits;
  limits.memory_bytes = host.memory_bytes;
  limits.max_allocation_bytes = host.memory_bytes;
  limits.max_local_bytes = info.profile.scratch_bytes;
  limits.max_workgroup = info.profile.max_workgroup;
  limits.max_groups = {0xffffffffll, 0xffffffffll, 0xffffffffll};
  limits.subgroup = host.lanes;
  limits.offset_alignment = kAlignment;
  limits.max_bindings = 64;
  limits.max_constant_words = 256;
  info.features = {host.target};
  if (supports_bf16_pairs()) info.features.push_back("bf16-products");
  if (has_amx(AmxProduct::bf16_pairs)) info.features.push_back("amx-bf16");
  if (has_amx(AmxProduct::u8s8)) info.features.push_back("amx-int8");
  return info;
}

}  // namespace

// Measured once for each number of threads and each setting of the rates that is asked for.
hal::DeviceInfo cpu_info() {
  static std::mutex mutex;
  static std::map<std::string, hal::DeviceInfo> known;
  const char *threads = std::getenv("MESHLOOM_THREADS"), *rates = std::getenv("MESHLOOM_CPU_RATES");
  const std::lock_guard lock(mutex);
  const auto [found, is_new] =
      known.try_emplace(std::string(threads ? threads : "") + "\n" + (rates ? rates : ""));
  if (is_new) try {
      found->second = describe();
    } catch (...) {
      known.erase(found);
      throw;
    }
  return found->second;
}

CpuDevice::CpuDevice(int workers) : Device(cpu_info()), pool_(workers > 0 ? workers : info_.profile.cores) {}

std::unique_ptr<hal::Buffer> CpuDevice::do_allocate(std::int64_t bytes, const std::string& label) {
  return make_buffer(bytes, label, hal::MemoryKind::device);
}

std::unique_ptr<hal::Buffer> CpuDevice::do_allocate_host(std::int64_t bytes, const std::string& label) {
  return make_buffer(bytes, label, hal::MemoryKind::host);
}

std::unique_ptr<hal::Buffer> CpuDevice::make_buffer(std::int64_t bytes, const std::string& label,
                                                    hal::MemoryKind kind) const {
  try {
    return std::make_unique<CpuBuffer>(bytes, label, kind);
  } catch (const std::bad_alloc&) {
    throw hal::OutOfMemory("cpu, allocating '" + label + "'", "the operating system must have the memory",
                           std::to_string(bytes) + " bytes wanted and refused");
  }
}

std::unique_ptr<hal::Buffer> CpuDevice::share(const hal::Buffer& of_other) {
  const std::string where = "cpu, sharing '" + of_other.label() + "'";
  std::byte* const data = of_other.host_address();
  if (!data) throw Error(where, "the memory must be of the host", "memory of a device");
  if (reinterpret_cast<std::uintptr_t>(data) % kAlignment != 0)
    throw Error(where, "the memory must be aligned to " + std::to_string(kAlignment) + " bytes",
                std::to_string(reinterpret_cast<std::uintptr_t>(data) % kAlignment) + " bytes beyond that");
  return std::make_unique<CpuBuffer>(data, of_other.bytes(), of_other.label());
}

std::shared_ptr<hal::Executable> CpuDevice::load(const hal::ExecutableSpec& spec) {
  const std::string where = "cpu, loading kernel '" + spec.kernel + "'";
  if (static_cast<std::int64_t>(spec.bindings.size()) > info_.limits.max_bindings)
    throw Error(where, "at most " + std::to_string(info_.limits.max_bindings) + " bindings",
                std::to_string(spec.bindings.size()));
  if (spec.constant_words > static_cast<std::uint32_t>(info_.limits.max_constant_words))
    throw Error(where, "at most " + std::to_string(info_.limits.max_constant_words) + " constants",
                std::to_string(spec.constant_words));
  std::weak_ptr<hal::Executable>& slot = loaded_[spec.key()];
  std::shared_ptr<hal::Executable> executable = slot.lock();
  if (!executable) {
    const Kernel& kernel = kernels_.find(spec.kernel);
    executable = std::make_shared<CpuExecutable>(spec, kernel.run, kernel.schedule);
    slot = executable;
  }
  return executable;
}

std::unique_ptr<hal::CommandList> CpuDevice::record(std::string name) {
  return std::make_unique<CpuCommandList>(std::move(name), info_.limits);
}

void CpuDevice::submit(hal::CommandList& list) {
  auto* own = dynamic_cast<CpuCommandList*>(&list);
  if (own == nullptr) throw Error("cpu, submit", "a list must be recorded by the device it is submitted to");
  if (!own->finished()) throw Error("cpu, list '" + own->name() + "'", "finish() must come before submit()");
  own->run(pool_);
}

void CpuDevice::write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) {
  const std::string where = "cpu, writing '" + buffer.label() + "'";
  std::byte* to = host_address({&buffer, offset, static_cast<std::int64_t>(data.size())}, 1, where);
  if (!data.empty()) std::memcpy(to, data.data(), data.size());
}

void CpuDevice::read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) {
  const std::string where = "cpu, reading '" + buffer.label() + "'";
  const std::byte* from = host_address(
      {const_cast<hal::Buffer*>(&buffer), offset, static_cast<std::int64_t>(data.size())}, 1, where);
  if (!data.empty()) std::memcpy(data.data(), from, data.size());
}

hal::BackendEntry cpu_backend() {
  return {"cpu",
          // A wrong MESHLOOM_THREADS is an error, not a missing device.
          [](std::string&) -> std::vector<hal::DeviceInfo> { return {cpu_info()}; },
          [](int) -> std::unique_ptr<hal::Device> { return std::make_unique<CpuDevice>(); }};
}

}  // namespace meshloom::backends::cpu
