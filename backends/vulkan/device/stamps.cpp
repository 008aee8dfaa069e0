#include "backends/vulkan/device/stamps.h"

#include <cstring>

#include "backends/vulkan/device/status.h"

namespace meshloom::backends::vulkan {
namespace {

constexpr std::size_t kPerPool = 1024;

}  // namespace

hal::ExecutableSpec Stamps::counter_spec() {
  return {"count_submission", {}, {1, 1, 1}, {hal::Access::read_write}, 1};
}

Stamps::~Stamps() {
  if (!context_->drain(context_->submitted())) return;
  for (const Pool& pool : pools_) vkDestroyDescriptorPool(context_->device(), pool.descriptors, nullptr);
}

std::size_t Stamps::take() {
  if (free_.empty()) {
    Pool pool;
    pool.counts = std::make_unique<Allocation>(context_, static_cast<std::int64_t>(4 * kPerPool),
                                               Allocation::Kind::stamps, "stamps of submissions");
    std::memset(pool.counts->mapped(), 0, 4 * kPerPool);
    pool.expected.resize(kPerPool);
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1};
    VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
    info.maxSets = 1;
    info.poolSizeCount = 1;
    info.pPoolSizes = &size;
    check(vkCreateDescriptorPool(context_->device(), &info, nullptr, &pool.descriptors), context_->where(),
          "vkCreateDescriptorPool");
    VkDescriptorSetAllocateInfo allocate{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
    allocate.descriptorPool = pool.descriptors;
    allocate.descriptorSetCount = 1;
    allocate.pSetLayouts = &counter_->layout(false).set;
    const VkResult status = vkAllocateDescriptorSets(context_->device(), &allocate, &pool.set);
    if (status != VK_SUCCESS) vkDestroyDescriptorPool(context_->device(), pool.descriptors, nullptr);
    check(status, context_->where(), "vkAllocateDescriptorSets");
    const VkDescriptorBufferInfo range{pool.counts->buffer(), 0, 4 * kPerPool};
    VkWriteDescriptorSet write{VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
    write.dstSet = pool.set;
    write.descriptorCount = 1;
    write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    write.pBufferInfo = &range;
    vkUpdateDescriptorSets(context_->device(), 1, &write, 0, nullptr);
    for (std::size_t i = kPerPool; i > 0; --i) free_.push_back(pools_.size() * kPerPool + i - 1);
    pools_.push_back(std::move(pool));
  }
  const std::size_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void Stamps::record(VkCommandBuffer commands, std::size_t slot) const {
  constexpr VkPipelineStageFlags kWork =
      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  // The host reads unified memory directly.
  const VkMemoryBarrier before{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr,
                               VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                               VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                                   VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT};
  vkCmdPipelineBarrier(commands, kWork, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0,
                       1, &before, 0, nullptr, 0, nullptr);
  dispatch(commands, slot, 1);
  const VkMemoryBarrier after{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_SHADER_WRITE_BIT,
                              VK_ACCESS_HOST_READ_BIT};
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                       &after, 0, nullptr, 0, nullptr);
}

void Stamps::dispatch(VkCommandBuffer commands, std::size_t slot, std::uint32_t groups) const {
  const Pool& pool = pools_[slot / kPerPool];
  PushConstants push{};
  push.words[0] = static_cast<std::uint32_t>(slot % kPerPool);
  const VkPipelineLayout layout = counter_->layout(false).pipeline;
  vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &pool.set, 0, nullptr);
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, counter_->pipeline(false));
  vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
  vkCmdDispatch(commands, groups, 1, 1);
}

bool Stamps::driver_counts_exactly() {
  constexpr std::uint32_t kGroups = 37;
  const VkDevice device = context_->device();
  const std::size_t slot = take(), stamp = take();  // the former's count means nothing afterwards
  VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
  info.queryType = VK_QUERY_TYPE_PIPELINE_STATISTICS;
  info.queryCount = 1;
  info.pipelineStatistics = VK_QUERY_PIPELINE_STATISTIC_COMPUTE_SHADER_INVOCATIONS_BIT;
  VkQueryPool pool = VK_NULL_HANDLE;
  if (vkCreateQueryPool(device, &info, nullptr, &pool) != VK_SUCCESS) return false;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  // What a device that hangs may still use is left to it.
  const auto release = [&](VkQueryPool* counted) {
    if (!context_->drain(context_->submitted())) return;
    if (commands) context_->free_command_buffer(commands);
    vkDestroyQueryPool(context_->device(), *counted, nullptr);
  };
  const std::unique_ptr<VkQueryPool, decltype(release)&> released(&pool, release);
  commands = context_->new_command_buffer();
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  check(vkBeginCommandBuffer(commands, &begin), context_->where(), "vkBeginCommandBuffer");
  vkCmdResetQueryPool(commands, pool, 0, 1);
  vkCmdBeginQuery(commands, pool, 0, 0);
  dispatch(commands, slot, kGroups);
  vkCmdEndQuery(commands, pool, 0);
  record(commands, stamp);
  check(vkEndCommandBuffer(commands), context_->where(), "vkEndCommandBuffer");
  context_->wait(context_->submit(commands, {}, {next(stamp)}));
  give_back(stamp);
  // A driver that does not count is told from one that left the dispatch out by what it wrote.
  if (*next(slot).count == 0)
    throw hal::DeviceLost(context_->where(),
                          "work that was submitted must have run when the driver says it has",
                          "the first dispatch did not");
  std::uint64_t counted = 0;
  const VkResult status = vkGetQueryPoolResults(device, pool, 0, 1, sizeof counted, &counted, sizeof counted,
                                                VK_QUERY_RESULT_64_BIT);
  return status == VK_SUCCESS && counted == kGroups;
}

Stamp Stamps::next(std::size_t slot) {
  Pool& pool = pools_[slot / kPerPool];
  const auto* counts = reinterpret_cast<const std::uint32_t*>(pool.counts->mapped());
  return {counts + slot % kPerPool, ++pool.expected[slot % kPerPool]};
}

}  // namespace meshloom::backends::vulkan
