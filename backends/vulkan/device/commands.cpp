#include "backends/vulkan/device/commands.h"

#include <algorithm>
#include <utility>

#include "backends/vulkan/device/status.h"
#include "hal/bounds.h"

namespace meshloom::backends::vulkan {
namespace {

constexpr VkPipelineStageFlags kWork = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr std::uint32_t kSetsPerPool = 256, kTimesPerPool = 1024;
constexpr VkAccessFlags kWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

void memory_barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkAccessFlags writes,
                    VkPipelineStageFlags to, VkAccessFlags accesses) {
  const VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, writes, accesses};
  vkCmdPipelineBarrier(commands, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

}  // namespace

VkCommandList::VkCommandList(std::shared_ptr<Context> context, std::string name, const hal::Limits& limits)
    : context_(std::move(context)), name_(std::move(name)), limits_(limits) {
  begin_segment();
}

VkCommandList::~VkCommandList() {
  context_->wait_quietly(last_);
  for (const Segment& segment : segments_) {
    context_->free_command_buffer(segment.commands);
    context_->free_event(segment.completed);
  }
  for (VkBufferView view : views_) vkDestroyBufferView(context_->device(), view, nullptr);
  for (VkDescriptorPool pool : pools_) vkDestroyDescriptorPool(context_->device(), pool, nullptr);
  for (VkQueryPool pool : time_pools_) vkDestroyQueryPool(context_->device(), pool, nullptr);
}

VkDescriptorSet VkCommandList::new_set(VkDescriptorSetLayout layout, const std::string& label) {
  if (sets_left_ == 0) {
    const VkDescriptorPoolSize sizes[] = {{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, kSetsPerPool * 8},
                                          {VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, kSetsPerPool * 8}};
    VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
    info.maxSets = kSetsPerPool;
    info.poolSizeCount = context_->uses_texel_buffers() ? 2 : 1;
    info.pPoolSizes = sizes;
    VkDescriptorPool pool = VK_NULL_HANDLE;
    check(vkCreateDescriptorPool(context_->device(), &info, nullptr, &pool), place(label),
          "vkCreateDescriptorPool");
    pools_.push_back(pool);
    sets_left_ = kSetsPerPool;
  }
  VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
  info.descriptorPool = pools_.back();
  info.descriptorSetCount = 1;
  info.pSetLayouts = &layout;
  VkDescriptorSet set = VK_NULL_HANDLE;
  check(vkAllocateDescriptorSets(context_->device(), &info, &set), place(label), "vkAllocateDescriptorSets");
  --sets_left_;
  return set;
}

VkBufferView VkCommandList::new_view(const VkDescriptorBufferInfo& range, const std::string& label) {
  VkBufferViewCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO};
  info.buffer = range.buffer;
  info.format = VK_FORMAT_R32_UINT;
  info.offset = range.offset;
  info.range = range.range / 4 * 4;
  VkBufferView view = VK_NULL_HANDLE;
  check(vkCreateBufferView(context_->device(), &info, nullptr, &view), place(label), "vkCreateBufferView");
  views_.push_back(view);
  return view;
}

std::string VkCommandList::place(const std::string& label) const {
  return context_->where() + ", list '" + name_ + "', " + label;
}

void VkCommandList::begin_segment() {
  segments_.push_back({context_->new_command_buffer(), VK_NULL_HANDLE, {}});
  segments_.back().completed = context_->new_event();
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  // The list may be submitted again while it is still running.
  begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  check(vkBeginCommandBuffer(segments_.back().commands, &begin), place("begin"), "vkBeginCommandBuffer");
  // Waits for everything submitted before, which a queue alone does not ensure.
  memory_barrier(segments_.back().commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_WRITE_BIT,
                 kWork, kReads | kWrites);
}

void VkCommandList::end_segment() {
  // The host reads unified memory directly.
  memory_barrier(segments_.back().commands, kWork, kWrites, VK_PIPELINE_STAGE_HOST_BIT,
                 VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
  context_->record_event(segments_.back().commands, segments_.back().completed);
  check(vkEndCommandBuffer(segments_.back().commands), place("end"), "vkEndCommandBuffer");
}

VkCommandBuffer VkCommandList::open_segment(const std::string& label) {
  if (finished_) throw hal::Error(place(label), "nothing can be recorded after finish()");
  return segments_.back().commands;
}

VkCommandList::Range VkCommandList::range_of(const hal::Binding& binding, const std::string& label) const {
  if (!binding.buffer) throw hal::Error(place(label), "a binding must name a buffer");
  const VkHalBuffer& buffer = vk_buffer(*binding.buffer, place(label));
  hal::check_bounds(buffer, binding, place(label));
  return {&buffer.allocation(), binding.offset, binding.bytes, binding.access};
}

void VkCommandList::dispatch(const std::shared_ptr<hal::Executable>& executable,
                             std::array<std::uint32_t, 3> groups, std::span<const hal::Binding> bindings,
                             std::span<const hal::Word> constants, const std::string& label) {
  const VkCommandBuffer commands = open_segment(label);
  const auto own = std::dynamic_pointer_cast<VkExecutable>(executable);
  if (!own) throw hal::Error(place(label), "an executable must be of the device that runs it");
  const hal::ExecutableSpec& spec = own->spec();
  if (bindings.size() != spec.bindings.size() || constants.size() != spec.constant_words)
    throw hal::Error(place(label),
                     "kernel '" + spec.kernel + "' takes " + std::to_string(spec.bindings.size()) +
                         " bindings and " + std::to_string(spec.constant_words) + " constants",
                     std::to_string(bindings.size()) + " and " + std::to_string(constants.size()));
  for (std::size_t d = 0; d < 3; ++d)
    if (groups[d] == 0 || groups[d] > limits_.max_groups[d])
      throw hal::Error(place(label),
                       "groups in dimension " + std::to_string(d) + " must be 1 to " +
                           std::to_string(limits_.max_groups[d]),
                       std::to_string(groups[d]));
  PushConstants push{};
  // Where one range is beyond a descriptor's limit, all buffers of the dispatch are passed by address.
  bool by_address = false;
  std::vector<VkDescriptorBufferInfo> ranges;
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    const Range range = range_of(bindings[i], label);
    if (range.offset % limits_.offset_alignment != 0)
      throw hal::Error(place(label),
                       "offsets must be multiples of " + std::to_string(limits_.offset_alignment),
                       std::to_string(range.offset));
    push.address[i] = range.allocation->address() + static_cast<VkDeviceAddress>(range.offset);
    ranges.push_back({range.allocation->buffer(), static_cast<VkDeviceSize>(range.offset),
                      static_cast<VkDeviceSize>(range.bytes)});
    const VkDescriptorType type = own->slots().type(static_cast<std::uint32_t>(i));
    by_address = by_address || range.bytes > context_->max_descriptor_bytes(type);
  }
  for (std::size_t i = 0; i < constants.size(); ++i) push.words[i] = constants[i].u;
  if (!by_address) {
    const VkDescriptorSet set = new_set(own->layout(false).set, label);
    std::vector<VkWriteDescriptorSet> writes;
    std::vector<VkBufferView> views(ranges.size());
    for (std::uint32_t i = 0; i < ranges.size(); ++i) {
      VkWriteDescriptorSet write{VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
      write.dstSet = set;
      write.dstBinding = i;
      write.descriptorCount = 1;
      write.descriptorType = own->slots().type(i);
      if (write.descriptorType == VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER) {
        views[i] = new_view(ranges[i], label);
        write.pTexelBufferView = &views[i];
      } else {
        write.pBufferInfo = &ranges[i];
      }
      writes.push_back(write);
    }
    vkUpdateDescriptorSets(context_->device(), static_cast<std::uint32_t>(writes.size()), writes.data(), 0,
                           nullptr);
    vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, own->layout(false).pipeline, 0, 1, &set,
                            0, nullptr);
  }
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, own->pipeline(by_address));
  vkCmdPushConstants(commands, own->layout(by_address).pipeline, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push,
                     &push);
  vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
  executables_.push_back(executable);
}

void VkCommandList::copy(const hal::Binding& from, const hal::Binding& to, const std::string& label) {
  const VkCommandBuffer commands = open_segment(label);
  if (from.bytes != to.bytes)
    throw hal::Error(place(label), "both ranges of a copy have the same size",
                     std::to_string(from.bytes) + " and " + std::to_string(to.bytes) + " bytes");
  const Range source = range_of(from, label), target = range_of(to, label);
  if (source.allocation == target.allocation && from.offset < to.offset + to.bytes &&
      to.offset < from.offset + from.bytes)
    throw hal::Error(place(label), "the ranges of a copy must not overlap",
                     std::to_string(from.bytes) + " bytes at " + std::to_string(from.offset) + " and " +
                         std::to_string(to.offset) + " of '" + from.buffer->label() + "'");
  if (source.bytes == 0) return;
  const VkBufferCopy region{static_cast<VkDeviceSize>(source.offset),
                            static_cast<VkDeviceSize>(target.offset),
                            static_cast<VkDeviceSize>(source.bytes)};
  vkCmdCopyBuffer(commands, source.allocation->buffer(), target.allocation->buffer(), 1, &region);
}

void VkCommandList::fill(const hal::Binding& to, hal::Word value, const std::string& label) {
  const VkCommandBuffer commands = open_segment(label);
  if (to.bytes % 4 != 0 || to.offset % 4 != 0)
    throw hal::Error(place(label), "a fill covers whole 32-bit words",
                     std::to_string(to.bytes) + " bytes at " + std::to_string(to.offset));
  const Range range = range_of(to, label);
  if (range.bytes == 0) return;
  vkCmdFillBuffer(commands, range.allocation->buffer(), static_cast<VkDeviceSize>(range.offset),
                  static_cast<VkDeviceSize>(range.bytes), value.u);
}

void VkCommandList::host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                              const std::string& label) {
  open_segment(label);
  if (!function) throw hal::Error(place(label), "a host call needs a function");
  HostCall call{std::move(function), {}, label};
  for (const hal::Binding& binding : bindings) call.ranges.push_back(range_of(binding, label));
  end_segment();
  segments_.back().call = std::move(call);
  begin_segment();
}

void VkCommandList::barrier() {
  memory_barrier(open_segment("barrier"), kWork, kWrites, kWork, kReads | kWrites);
}

void VkCommandList::timestamp() {
  const VkCommandBuffer commands = open_segment("timestamp");
  if (context_->timestamp_seconds() <= 0) return CommandList::timestamp();
  const std::uint32_t index = times_++ % kTimesPerPool;
  if (index == 0) {
    VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = kTimesPerPool;
    VkQueryPool pool = VK_NULL_HANDLE;
    check(vkCreateQueryPool(context_->device(), &info, nullptr, &pool), place("timestamp"),
          "vkCreateQueryPool");
    time_pools_.push_back(pool);
    vkCmdResetQueryPool(commands, pool, 0, kTimesPerPool);
  }
  barrier();
  vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, time_pools_.back(), index);
}

std::vector<double> VkCommandList::intervals() {
  std::vector<std::uint64_t> ticks(times_);
  for (std::uint32_t first = 0; first < times_; first += kTimesPerPool) {
    const std::uint32_t count = std::min(kTimesPerPool, times_ - first);
    check(vkGetQueryPoolResults(context_->device(), time_pools_[first / kTimesPerPool], 0, count,
                                count * sizeof(std::uint64_t), &ticks[first], sizeof(std::uint64_t),
                                VK_QUERY_RESULT_64_BIT),
          place("timestamp"), "vkGetQueryPoolResults");
  }
  std::vector<double> seconds;
  for (std::size_t i = 1; i < ticks.size(); ++i)
    seconds.push_back(static_cast<double>((ticks[i] - ticks[i - 1]) & context_->timestamp_mask()) *
                      context_->timestamp_seconds());
  return seconds;
}

void VkCommandList::finish() {
  open_segment("finish");
  end_segment();
  finished_ = true;
}

void VkCommandList::run_host_call(const HostCall& call, Transfer& transfer) const {
  std::vector<std::vector<std::byte>> copies(call.ranges.size());
  std::vector<hal::HostRange> views;
  for (std::size_t i = 0; i < call.ranges.size(); ++i) {
    const Range& range = call.ranges[i];
    if (std::byte* mapped = range.allocation->mapped()) {
      views.push_back({mapped + range.offset, range.bytes});
      continue;
    }
    copies[i].resize(static_cast<std::size_t>(range.bytes));
    // Written ranges are read too, since the function may leave parts of them unchanged.
    transfer.read(*range.allocation, range.offset, copies[i]);
    views.push_back({copies[i].data(), range.bytes});
  }
  call.function(views);
  for (std::size_t i = 0; i < call.ranges.size(); ++i)
    if (!copies[i].empty() && call.ranges[i].access != hal::Access::read)
      transfer.write(*call.ranges[i].allocation, call.ranges[i].offset, copies[i]);
}

void VkCommandList::submit(Transfer& transfer) {
  if (!finished_) throw hal::Error(place("submit"), "finish() must come before the first submit");
  for (const Segment& segment : segments_) {
    last_ = context_->submit(segment.commands, segment.completed);
    if (!segment.call.function) continue;
    context_->wait(last_);
    run_host_call(segment.call, transfer);
  }
}

}  // namespace meshloom::backends::vulkan
