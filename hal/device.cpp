#include "hal/device.h"

#include <algorithm>
#include <utility>

namespace meshloom::hal {

Buffer::~Buffer() {
  if (!ledger_) return;
  std::lock_guard lock(ledger_->mutex);
  ledger_->allocated -= bytes_;
  --ledger_->count;
}

std::string to_string(const MatrixShape& shape) {
  return std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k) + " " +
         std::string(to_string(shape.in)) + "->" + std::string(to_string(shape.sum));
}

std::string ExecutableSpec::key() const {
  std::string text = kernel;
  for (const Define& define : defines) text += " " + define.name + "=" + define.value;
  text += " workgroup=" + std::to_string(workgroup[0]) + "," + std::to_string(workgroup[1]) + "," +
          std::to_string(workgroup[2]) + " bindings=";
  for (Access access : bindings) text += access == Access::read ? 'r' : access == Access::write ? 'w' : 'x';
  text += " constants=" + std::to_string(constant_words);
  if (subgroup) text += " subgroup=" + std::to_string(subgroup);
  return fused > 1 ? text + " fused=" + std::to_string(fused) : text;
}

void CommandList::timestamp() { throw Error("timestamp", "the device must have timestamps", "none"); }
std::vector<double> CommandList::intervals() {
  throw Error("intervals", "the device must have timestamps", "none");
}

Device::Device(DeviceInfo info) : info_(std::move(info)) {}

void Device::run_as(const Profile& profile) {
  info_.profile = profile;
  as_ = true;
}

void Device::limit_memory(std::int64_t bytes) {
  for (std::int64_t* limit : {&info_.limits.memory_bytes, &info_.profile.memory_bytes})
    *limit = *limit > 0 ? std::min(*limit, bytes) : bytes;
  info_.profile.sources["memory_bytes"] = "limited by the run";
}

void Device::set_host(std::unique_ptr<Device> host) {
  host_ = std::move(host);
  info_.host = std::make_shared<const DeviceInfo>(host_->info());
}

std::unique_ptr<Buffer> Device::allocate(std::int64_t bytes, std::string label, MemoryKind kind) {
  const bool on_host = kind == MemoryKind::host;
  const std::string where =
      info_.id + (as_ ? " as " + info_.profile.name : "") + ", allocating '" + label + "'";
  if (bytes <= 0) throw Error(where, "a buffer must have at least one byte", std::to_string(bytes));
  // Of the host's memory the operating system knows what is left.
  const std::int64_t limit = on_host ? 0 : as_ ? info_.profile.memory_bytes : info_.limits.memory_bytes;
  MemoryLedger& counted = ledger(kind);
  {
    std::lock_guard lock(counted.mutex);
    if (limit > 0 && bytes > limit - counted.allocated)
      throw OutOfMemory(
          where, "the device memory is " + std::to_string(limit) + " bytes",
          std::to_string(bytes) + " bytes requested with " + std::to_string(counted.allocated) + " in use");
  }
  if (info_.limits.max_allocation_bytes > 0 && bytes > info_.limits.max_allocation_bytes)
    throw OutOfMemory(where,
                      "one buffer may have at most " + std::to_string(info_.limits.max_allocation_bytes) +
                          " bytes on this device",
                      std::to_string(bytes) + " bytes requested");
  std::unique_ptr<Buffer> buffer = on_host ? do_allocate_host(bytes, label) : do_allocate(bytes, label);
  std::lock_guard lock(counted.mutex);
  buffer->ledger_ = ledgers_[static_cast<std::size_t>(kind)];
  counted.allocated += bytes;
  counted.peak = std::max(counted.peak, counted.allocated);
  ++counted.count;
  return buffer;
}

std::unique_ptr<Buffer> Device::do_allocate_host(std::int64_t, const std::string& label) {
  throw Error(info_.id + ", allocating '" + label + "'",
              "memory of the host needs a device whose copies reach it", info_.name);
}

std::unique_ptr<Buffer> Device::share(const Buffer& of_other) {
  throw Error(info_.id + ", sharing '" + of_other.label() + "'",
              "only the host's processor computes on memory of the host");
}

void Device::load_all(std::span<const ExecutableSpec> specs, const LoadProgress& progress) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    load(specs[i]);
    if (progress) progress(i + 1, specs.size());
  }
}

void Device::wait_for(CommandList&, int) { wait(); }

std::int64_t Device::allocated_bytes(MemoryKind kind) const {
  std::lock_guard lock(ledger(kind).mutex);
  return ledger(kind).allocated;
}

std::int64_t Device::peak_bytes(MemoryKind kind) const {
  std::lock_guard lock(ledger(kind).mutex);
  return ledger(kind).peak;
}

std::int64_t Device::live_buffers() const {
  std::int64_t sum = 0;
  for (const auto& counted : ledgers_) {
    std::lock_guard lock(counted->mutex);
    sum += counted->count;
  }
  return sum;
}

void Device::reset_peak() {
  for (const auto& counted : ledgers_) {
    std::lock_guard lock(counted->mutex);
    counted->peak = counted->allocated;
  }
}

}  // namespace meshloom::hal
