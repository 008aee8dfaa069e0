// Command lists: command buffers that are recorded once and submitted many times, split at host calls and where a submission
// would take long. When submissions took much longer or shorter than predicted, the list is split anew.
#pragma once

#include <vulkan/vulkan.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backends/vulkan/device/context.h"
#include "backends/vulkan/device/memory.h"
#include "backends/vulkan/device/pipeline.h"
#include "backends/vulkan/device/stamps.h"
#include "hal/device.h"
#include "hal/submission.h"

namespace meshloom::backends::vulkan {

class VkCommandList final : public hal::CommandList {
 public:
  VkCommandList(std::shared_ptr<Context> context, std::shared_ptr<Stamps> stamps, std::string name,
                const hal::Limits& limits);
  ~VkCommandList() override;

  void dispatch(const std::shared_ptr<hal::Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const hal::Binding> bindings, std::span<const hal::Word> constants,
                const std::string& label) override;
  void copy(const hal::Binding& from, const hal::Binding& to, const std::string& label) override;
  void fill(const hal::Binding& to, hal::Word value, const std::string& label) override;
  void host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                 const std::string& label) override;
  void barrier() override;
  int mark() override;
  void predict(double seconds) override { costs_.predict(seconds); }
  void timestamp() override;
  std::vector<double> intervals() override;
  void finish() override;

  // Blocks at host calls.
  void submit(Transfer& transfer);
  // Waits for the mark of the last submit. Throws DeviceLost.
  void wait_for(int mark);

 private:
  struct Range {
    const Allocation* allocation;
    std::int64_t offset, bytes;
    hal::Access access;
  };
  struct Dispatch {
    std::shared_ptr<VkExecutable> executable;
    bool by_address;
    VkDescriptorSet set;
    PushConstants push;
    std::array<std::uint32_t, 3> groups;
    std::size_t axis;  // along which it may be cut
  };
  struct Copy {
    VkBuffer from, to;
    VkBufferCopy region;
  };
  struct Fill {
    VkBuffer buffer;
    VkDeviceSize offset, bytes;
    std::uint32_t value;
  };
  struct HostCall {
    hal::HostFunction function;
    std::vector<Range> ranges;
  };
  struct Barrier {};
  struct Mark {};
  struct Timestamp {
    std::uint32_t index;
  };
  struct Command {
    std::string label;  // "" where a person would not know it
    std::variant<Dispatch, Copy, Fill, HostCall, Barrier, Timestamp, Mark> what;
  };
  // The commands of one submission; none for a call of the host and for a mark.
  struct Segment {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    std::size_t slot = 0;           // of its stamp
    std::uint64_t invocations = 0;  // of its kernels
  };

  void check_open(const std::string& label) const;
  std::string place(const std::string& label) const;
  Range range_of(const hal::Binding& binding, const std::string& label) const;
  // The same for what must be memory of the device.
  Range device_range(const hal::Binding& binding, const std::string& label) const;
  VkDescriptorSet new_set(VkDescriptorSetLayout layout, const std::string& label);
  VkBufferView new_view(const VkDescriptorBufferInfo& range, const std::string& label);
  void add(std::string label, double weight, std::uint32_t parts, decltype(Command::what) what);
  // Cuts the commands into submissions and records these.
  void record_segments();
  void free_segments();
  void record(Segment& segment, const hal::Submission& submission, std::uint32_t index);
  void record(VkCommandBuffer commands, const Dispatch& dispatch, const hal::Piece& piece) const;
  const HostCall* host_call_of(const hal::Submission& submission) const;
  bool is_mark(const hal::Submission& submission) const;
  void run_host_call(const HostCall& call, Transfer& transfer) const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<Stamps> stamps_;
  std::string name_;
  hal::Limits limits_;
  std::vector<Command> commands_;
  hal::ListCosts costs_;
  std::vector<hal::Submission> submissions_;
  std::vector<Segment> segments_;  // of each submission
  std::shared_ptr<hal::SubmissionLog> log_;
  std::vector<VkDescriptorPool> pools_;
  std::vector<VkBufferView> views_;
  std::vector<VkQueryPool> time_pools_;  // full but the last
  VkQueryPool counts_ = VK_NULL_HANDLE;  // of invocations; VK_NULL_HANDLE where the driver does not count
  std::uint32_t times_ = 0;
  std::uint32_t sets_left_ = 0;  // in the last pool
  bool finished_ = false;
  bool ran_ = false;                  // since the segments were recorded
  std::uint64_t last_ = 0;            // the timeline value of the last submit
  std::vector<std::uint64_t> marks_;  // those of the submissions before each mark
  int marked_ = 0;
};

}  // namespace meshloom::backends::vulkan
