#include "backends/vulkan/device/memory.h"

#include <algorithm>
#include <cstring>

#include "backends/vulkan/device/stamps.h"
#include "backends/vulkan/device/status.h"

namespace meshloom::backends::vulkan {
namespace {

constexpr std::int64_t kStagingBytes = std::int64_t{16} << 20;

// The best memory type for a purpose; -1 when there is none.
int choose_type(const Context& context, std::uint32_t allowed, Allocation::Kind kind) {
  constexpr VkMemoryPropertyFlags kHost =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  constexpr VkMemoryPropertyFlags kCached =
      kHost | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;  // without it reads would be very slow
  if (kind == Allocation::Kind::device)
    return context.memory_type(allowed, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                            (context.unified() ? kCached : VkMemoryPropertyFlags{0}));
  // The host's own memory, where there is a choice.
  int cached = context.memory_type(allowed, kCached, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  if (cached < 0) cached = context.memory_type(allowed, kCached);
  return cached >= 0 ? cached : context.memory_type(allowed, kHost);
}

}  // namespace

Allocation::Allocation(std::shared_ptr<Context> context, std::int64_t bytes, Kind kind,
                       const std::string& label)
    : context_(std::move(context)) {
  const VkDevice device = context_->device();
  const std::string where = context_->where() + ", allocating '" + label + "'";
  VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.size = static_cast<VkDeviceSize>(bytes);
  info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  if (kind == Kind::device)
    info.usage |= VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  if (kind == Kind::device && context_->uses_texel_buffers())
    info.usage |= VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT;
  if (kind == Kind::stamps) info.usage |= VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
  info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
  check(vkCreateBuffer(device, &info, nullptr, &buffer_), where,
        "vkCreateBuffer of " + std::to_string(bytes) + " bytes");

  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device, buffer_, &needs);
  VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  if (kind == Kind::device) allocate.pNext = &flags;
  allocate.allocationSize = needs.size;
  const int type = choose_type(*context_, needs.memoryTypeBits, kind);
  VkResult status = type < 0 ? VK_ERROR_FEATURE_NOT_PRESENT : VK_SUCCESS;
  if (type >= 0) {
    allocate.memoryTypeIndex = static_cast<std::uint32_t>(type);
    status = vkAllocateMemory(device, &allocate, nullptr, &memory_);
  }
  if (status == VK_SUCCESS) status = vkBindBufferMemory(device, buffer_, memory_, 0);
  if (status == VK_SUCCESS && (kind != Kind::device || context_->unified())) {
    void* at = nullptr;
    status = vkMapMemory(device, memory_, 0, VK_WHOLE_SIZE, 0, &at);
    mapped_ = static_cast<std::byte*>(at);
  }
  if (status != VK_SUCCESS) {
    vkDestroyBuffer(device, buffer_, nullptr);
    vkFreeMemory(device, memory_, nullptr);
    check(status, where, "vkAllocateMemory of " + std::to_string(needs.size) + " bytes");
  }
  if (kind == Kind::device) {
    VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
    address.buffer = buffer_;
    address_ = vkGetBufferDeviceAddress(device, &address);
  }
}

Allocation::~Allocation() {
  if (!context_->drain(context_->submitted())) return;  // submitted work may still use it
  vkDestroyBuffer(context_->device(), buffer_, nullptr);
  vkFreeMemory(context_->device(), memory_, nullptr);
}

const VkHalBuffer& vk_buffer(const hal::Buffer& buffer, const std::string& where) {
  if (const auto* own = dynamic_cast<const VkHalBuffer*>(&buffer)) return *own;
  throw hal::Error(where, "a buffer must be of the device that uses it",
                   "'" + buffer.label() + "' of another backend");
}

Transfer::~Transfer() {
  if (commands_ && context_->drain(context_->submitted())) context_->free_command_buffer(commands_);
}

void Transfer::copy(VkBuffer from, std::int64_t from_offset, VkBuffer to, std::int64_t to_offset,
                    std::int64_t bytes) {
  if (commands_) context_->free_command_buffer(commands_);
  commands_ = nullptr;
  if (!slot_) slot_ = stamps_->take();
  commands_ = context_->new_command_buffer();
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  check(vkBeginCommandBuffer(commands_, &begin), context_->where(), "vkBeginCommandBuffer");
  const VkMemoryBarrier before{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_MEMORY_WRITE_BIT,
                               VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
  vkCmdPipelineBarrier(commands_, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1,
                       &before, 0, nullptr, 0, nullptr);
  const VkBufferCopy region{static_cast<VkDeviceSize>(from_offset), static_cast<VkDeviceSize>(to_offset),
                            static_cast<VkDeviceSize>(bytes)};
  vkCmdCopyBuffer(commands_, from, to, 1, &region);
  stamps_->record(commands_, *slot_);
  check(vkEndCommandBuffer(commands_), context_->where(), "vkEndCommandBuffer");
  context_->wait(context_->submit(commands_, {}, {stamps_->next(*slot_)}));
}

void Transfer::write(const Allocation& to, std::int64_t offset, std::span<const std::byte> data) {
  context_->wait_all();
  if (to.mapped()) {
    std::memcpy(to.mapped() + offset, data.data(), data.size());
    return;
  }
  if (!staging_)
    staging_ = std::make_unique<Allocation>(context_, kStagingBytes, Allocation::Kind::staging, "staging");
  const auto total = static_cast<std::int64_t>(data.size());
  for (std::int64_t at = 0; at < total; at += kStagingBytes) {
    const std::int64_t piece = std::min(kStagingBytes, total - at);
    std::memcpy(staging_->mapped(), data.data() + at, static_cast<std::size_t>(piece));
    copy(staging_->buffer(), 0, to.buffer(), offset + at, piece);
  }
}

void Transfer::read(const Allocation& from, std::int64_t offset, std::span<std::byte> data) {
  context_->wait_all();
  if (from.mapped()) {
    std::memcpy(data.data(), from.mapped() + offset, data.size());
    return;
  }
  if (!staging_)
    staging_ = std::make_unique<Allocation>(context_, kStagingBytes, Allocation::Kind::staging, "staging");
  const auto total = static_cast<std::int64_t>(data.size());
  for (std::int64_t at = 0; at < total; at += kStagingBytes) {
    const std::int64_t piece = std::min(kStagingBytes, total - at);
    copy(from.buffer(), offset + at, staging_->buffer(), 0, piece);
    std::memcpy(data.data() + at, staging_->mapped(), static_cast<std::size_t>(piece));
  }
}

}  // namespace meshloom::backends::vulkan
