// The interface of devices: memory, executables and recorded command lists. Implemented by backends/.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hal/error.h"
#include "hal/memory_kind.h"
#include "hal/profile.h"

namespace meshloom::hal {

// One product of the matrix unit, which a subgroup computes together: C (m, n) += A (m, k) B (k, n).
struct MatrixShape {
  std::int32_t m = 0, n = 0, k = 0;
  DType in = DType::f16;   // of A and B
  DType sum = DType::f32;  // of C
  bool operator==(const MatrixShape&) const = default;
};
std::string to_string(const MatrixShape& shape);  // "16x16x16 f16->f32"

// Hard limits of the driver, as opposed to the profile's description of a chip.
struct Limits {
  std::int64_t memory_bytes = 0;                    // as reported by the driver
  std::int64_t max_allocation_bytes = 0;            // largest single Buffer
  std::int64_t max_local_bytes = 0;                 // shared/local memory of one workgroup
  std::int32_t max_workgroup = 1;                   // invocations of one workgroup
  std::array<std::int64_t, 3> max_groups{1, 1, 1};  // workgroups per dispatch, per dimension
  std::int32_t subgroup = 1;                        // invocations that run in lockstep
  std::int64_t offset_alignment = 64;               // offsets of dispatch bindings are multiples of this
  std::int32_t max_bindings = 8;                    // buffers of one dispatch
  std::int32_t max_constant_words = 16;             // 32-bit constants of one dispatch
  std::int64_t max_parameter_bytes =
      0;  // of the arguments of a kernel; 0 = no kernel runs several dispatches
  // A kernel may request a subgroup size that is a power of two between these; 0 = it cannot.
  std::int32_t min_subgroup = 0, max_subgroup = 0;
  std::vector<MatrixShape> matrix_shapes;  // in the driver's order; none = no matrix unit
};

struct DeviceInfo {
  std::string id;       // "vulkan:0", "opencl:1", "cpu", "null"
  std::string backend;  // "vulkan", "opencl", "cpu"; of null the one that it stands for
  std::string name;     // as reported by the driver
  std::string vendor;
  std::string driver;         // name and version: part of every cache key
  std::string api;            // "Vulkan 1.3.230", "OpenCL 3.0"
  bool is_cpu = false;        // the "device" is the host's processor (lavapipe, PoCL)
  bool computes = true;       // false: programs are planned for it and never run (null)
  bool timestamps = false;    // command lists can record the device's time
  bool host_visible = false;  // its copies reach memory of the host (MemoryKind::host), which is not its own
  Limits limits;
  std::vector<std::string> features;  // "subgroup-arithmetic", "f16-storage", ...
  Profile profile;                    // what the device runs as; its own unless run_as() was called
  // The host's processor as a device of its own, where a part of a run may have its place; nullptr = not opened.
  std::shared_ptr<const DeviceInfo> host;
  // The results of self-tests of kernels on this device, by "op variant", or kFusedLaunches: "" = passed, else the problem.
  std::map<std::string, std::string> self_test_results;

  bool has(std::string_view feature) const {
    return std::find(features.begin(), features.end(), feature) != features.end();
  }
};

// The current and peak number of allocated bytes, shared by a device and its buffers.
struct MemoryLedger {
  std::mutex mutex;
  std::int64_t allocated = 0, peak = 0, count = 0;
};

class Device;

// Memory of a device. Its contents are undefined until written. The destructor frees it; a command list that uses
// it must not be submitted afterwards. Memory of the host may be bound by copy() and host_call() only.
class Buffer {
 public:
  virtual ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::int64_t bytes() const { return bytes_; }
  const std::string& label() const { return label_; }
  MemoryKind memory() const { return host_ ? MemoryKind::host : MemoryKind::device; }
  // Where memory of the host lies; nullptr for memory of the device. What the device writes there is seen after
  // Device::wait or wait_for; what the host writes is seen by lists that are submitted later.
  std::byte* host_address() const { return host_; }

 protected:
  Buffer(std::int64_t bytes, std::string label, std::byte* host = nullptr)
      : bytes_(bytes), label_(std::move(label)), host_(host) {}

 private:
  friend class Device;
  std::int64_t bytes_;
  std::string label_;
  std::byte* host_;
  std::shared_ptr<MemoryLedger> ledger_;  // set by Device::allocate
};

enum class Access : std::uint8_t { read, write, read_write };

// One range of one buffer, as one argument of a dispatch.
struct Binding {
  Buffer* buffer = nullptr;
  std::int64_t offset = 0;  // bytes, a multiple of Limits::offset_alignment
  std::int64_t bytes = 0;
  Access access = Access::read;
};

// Compile-time parameter of a kernel: a macro in device code, a template or table key on the CPU.
struct Define {
  std::string name, value;
  bool operator==(const Define&) const = default;
};

// A kernel of the backend and its specialization. All of it is part of cache keys.
struct ExecutableSpec {
  std::string kernel;  // "matmul_gpu_tile"
  std::vector<Define> defines;
  std::array<std::uint32_t, 3> workgroup{1, 1, 1};  // invocations
  std::vector<Access> bindings;                     // in the order of the kernel's buffer arguments
  std::uint32_t constant_words = 0;                 // 32-bit constants
  std::uint32_t subgroup = 0;  // required invocations of a subgroup; 0 = the driver's choice
  // Dispatches that one launch of the kernel runs, on devices with Limits::max_parameter_bytes. Its bindings are those of all of them,
  // one dispatch behind another; its constants too, behind which each has four more words: the first of its workgroups among
  // those of the launch, which are counted along x, and how many it has in x, y and z. Those that have nothing to run come last and begin
  // at kNoWorkgroup.
  std::uint32_t fused = 1;

  std::string key() const;  // one line, unique per specialization
};

// A compiled kernel. Shared: loading the same spec twice gives the same object.
class Executable {
 public:
  virtual ~Executable() = default;
  const ExecutableSpec& spec() const { return spec_; }

 protected:
  explicit Executable(ExecutableSpec spec) : spec_(std::move(spec)) {}

 private:
  ExecutableSpec spec_;
};

// Of DeviceInfo::self_test_results: launches of several dispatches.
inline constexpr const char* kFusedLaunches = "fused launches";
constexpr std::int32_t kNoWorkgroup = 2147483647;
constexpr std::uint32_t kFusedWords = 4;  // of ExecutableSpec::fused, for each dispatch

// A 32-bit constant of a dispatch.
union Word {
  std::uint32_t u;
  std::int32_t i;
  float f;
};
inline Word word(std::int64_t value) {
  Word w;
  w.i = static_cast<std::int32_t>(value);
  return w;
}
inline Word word(float value) {
  Word w;
  w.f = value;
  return w;
}

// The host's view of a binding inside host_call.
struct HostRange {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};
using HostFunction = std::function<void(std::span<const HostRange>)>;

// A sequence of commands that is recorded once and submitted any number of times. Commands between two
// barriers may run in any order or concurrently; a command after a barrier sees the effects of all commands
// before it.
class CommandList {
 public:
  virtual ~CommandList() = default;

  // `label` names the command in traces and errors ("model/decoder/layer3/attention matmul").
  virtual void dispatch(const std::shared_ptr<Executable>& executable, std::array<std::uint32_t, 3> groups,
                        std::span<const Binding> bindings, std::span<const Word> constants,
                        const std::string& label) = 0;
  // Offsets and sizes need only be multiples of 4.
  virtual void copy(const Binding& from, const Binding& to, const std::string& label) = 0;
  // Fills with a repeated 32-bit word; the range must be a multiple of 4 bytes.
  virtual void fill(const Binding& to, Word value, const std::string& label) = 0;
  // Runs `function` on the host between the commands before and after it. The bindings' bytes are mapped, or
  // copied to the host and, if written, back. This is slow; it is the fallback for ops without a kernel.
  virtual void host_call(HostFunction function, std::span<const Binding> bindings,
                         const std::string& label) = 0;
  virtual void barrier() = 0;
  // Marks this place, for Device::wait_for; they are counted from 0.
  virtual int mark() { return 0; }
  // A barrier that also records the device's time when everything before it has finished. Throws Error when
  // DeviceInfo::timestamps is false.
  virtual void timestamp();
  // The seconds between successive timestamps of the last submit, which must have finished (Device::wait).
  virtual std::vector<double> intervals();
  // A hint to lists that are cut into submissions (submission.h): the commands from here to the next call of this take about
  // `seconds` together; 0 = not known.
  virtual void predict(double /*seconds*/) {}
  // Ends recording; must be called before the first submit.
  virtual void finish() = 0;
};

// Called by the thread that waits, with how many of how many kernels are loaded.
using LoadProgress = std::function<void(std::size_t done, std::size_t all)>;

// One device, which one thread at a time may use. submit() returns at once; submitted lists run in the order
// of submission; write() and read() happen after all work that was submitted before.
// Every function throws DeviceLost when the device failed, when it did not answer within a limit (submission.h), and when
// work was left out. Its buffers, its lists and then the device must only be destroyed after that, which neither throws
// nor blocks for longer than the limit, also while the device may still be at work; it may then be opened again by its id.
class Device {
 public:
  virtual ~Device() = default;

  const DeviceInfo& info() const { return info_; }
  const Profile& profile() const { return info_.profile; }
  // Lays a profile over the device: its memory size becomes the limit of allocate().
  virtual void run_as(const Profile& profile);
  // Lowers the limit of allocate() to `bytes`.
  void limit_memory(std::int64_t bytes);
  // Opens the way to the host's processor beside this device: info().host is its description then.
  void set_host(std::unique_ptr<Device> host);
  Device* host() const { return host_.get(); }
  bool runs_as_another() const { return as_; }
  void add_self_test_result(const std::string& kernel, std::string found) {
    info_.self_test_results[kernel] = std::move(found);
  }

  // Throws OutOfMemory naming the label and the numbers of requested, used and available bytes, and Error for memory
  // of the host where the device's copies do not reach it. Counts exactly `bytes`, by kind.
  std::unique_ptr<Buffer> allocate(std::int64_t bytes, std::string label,
                                   MemoryKind kind = MemoryKind::device);
  // A buffer of this device over another device's memory of the host, which must outlive it. Nothing is counted.
  // Throws Error where the device's kernels cannot use the host's memory; those of the host's processor can.
  virtual std::unique_ptr<Buffer> share(const Buffer& of_other);
  std::int64_t allocated_bytes(MemoryKind kind = MemoryKind::device) const;
  std::int64_t peak_bytes(MemoryKind kind = MemoryKind::device) const;
  std::int64_t live_buffers() const;  // of both kinds
  void reset_peak();

  virtual std::shared_ptr<Executable> load(const ExecutableSpec& spec) = 0;
  // Loads all: one by one, or on all cores where the backend compiles for long (parallel_load.h). Throws as load() does.
  virtual void load_all(std::span<const ExecutableSpec> specs, const LoadProgress& progress = {});
  virtual std::unique_ptr<CommandList> record(std::string name) = 0;
  virtual void submit(CommandList& list) = 0;
  // Blocks until all submitted work has finished. Throws DeviceLost.
  virtual void wait() = 0;
  // Blocks until everything before a mark in the last submit of `list` has finished, and perhaps more. Throws DeviceLost.
  virtual void wait_for(CommandList& list, int mark);
  virtual void write(Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) = 0;
  virtual void read(const Buffer& buffer, std::int64_t offset, std::span<std::byte> data) = 0;

 protected:
  explicit Device(DeviceInfo info);
  virtual std::unique_ptr<Buffer> do_allocate(std::int64_t bytes, const std::string& label) = 0;
  // Memory of the host. Throws Error unless the backend overrides it.
  virtual std::unique_ptr<Buffer> do_allocate_host(std::int64_t bytes, const std::string& label);

  DeviceInfo info_;

 private:
  bool as_ = false;
  std::unique_ptr<Device> host_;
  MemoryLedger& ledger(MemoryKind kind) const { return *ledgers_[static_cast<std::size_t>(kind)]; }
  std::array<std::shared_ptr<MemoryLedger>, 2> ledgers_{std::make_shared<MemoryLedger>(),
                                                        std::make_shared<MemoryLedger>()};  // by kind
};

}  // namespace meshloom::hal
