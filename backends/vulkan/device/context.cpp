#include "backends/vulkan/device/context.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/simt/host/quirks.h"
#include "backends/vulkan/device/matrix_api.h"
#include "backends/vulkan/device/status.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

// A note is printed when a wait takes this long, and again whenever the time has doubled.
constexpr std::uint64_t kSecondsBeforeNote = 30;

VkDevice make_device(const PhysicalDevice& found, const std::string& where) {
  const Features& has = found.features;
  VkPhysicalDeviceVulkan12Features v12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  v12.bufferDeviceAddress = VK_TRUE;
  v12.timelineSemaphore = VK_TRUE;
  v12.storageBuffer8BitAccess = has.storage_8bit;
  v12.shaderFloat16 = has.float16;
  v12.shaderInt8 = has.int8;
  VkPhysicalDeviceVulkan11Features v11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
  v11.pNext = &v12;
  v11.storageBuffer16BitAccess = has.storage_16bit;
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  features.pNext = &v11;
  features.features.shaderInt16 = has.int16;
  features.features.shaderInt64 = has.int64;
  features.features.shaderFloat64 = has.float64;

  const float priority = 1;
  VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queue.queueFamilyIndex = found.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  std::vector<const char*> extensions;
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, nullptr, VK_TRUE, VK_FALSE};
  VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR, nullptr, VK_TRUE, VK_FALSE, VK_TRUE};
  VkPhysicalDeviceSubgroupSizeControlFeatures subgroups{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES, nullptr, VK_TRUE, VK_TRUE};
  const auto enable = [&](auto& structure, const char* extension) {
    structure.pNext = features.pNext;
    features.pNext = &structure;
    if (extension) extensions.push_back(extension);
  };
  if (has.cooperative_matrix) {
    v12.vulkanMemoryModel = VK_TRUE;
    enable(matrices, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
  }
  if (has.bfloat16_matrix) enable(bfloat16, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
  if (has.subgroup_size_control)
    enable(subgroups,
           found.api_version < VK_API_VERSION_1_3 ? VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME : nullptr);
  if (has.portability_subset) extensions.push_back("VK_KHR_portability_subset");
  VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  VkDevice device = VK_NULL_HANDLE;
  check(vkCreateDevice(found.device, &info, nullptr, &device), where, "vkCreateDevice");
  return device;
}

// MESHLOOM_VULKAN_STAGING=1 uses staging buffers where they are not needed, for tests on machines without a GPU.
bool staging_forced() {
  const char* value = std::getenv("MESHLOOM_VULKAN_STAGING");
  return value && std::string_view(value) == "1";
}

}  // namespace

Context::Context(std::shared_ptr<Instance> instance, const PhysicalDevice& found)
    : instance_(std::move(instance)), where_(found.info.id), cache_key_(found.cache_key) {
  vkGetPhysicalDeviceMemoryProperties(found.device, &memory_);
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(found.device, &properties);
  max_storage_bytes_ = properties.limits.maxStorageBufferRange;
  max_texel_bytes_ = std::int64_t{4} * properties.limits.maxTexelBufferElements;
  timestamp_seconds_ = found.timestamp_seconds;
  timestamp_mask_ = found.timestamp_mask;
  uses_texel_buffers_ = simt::quirks_of(found.info.name).slow_storage_loads;
  // The host may reach a discrete GPU's memory too, but reads over the bus would be very slow.
  const bool one_memory = properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ||
                          properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
  unified_ =
      one_memory && !staging_forced() &&
      memory_type(~0u, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                           VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT) >= 0;
  device_ = make_device(found, where_);
  vkGetDeviceQueue(device_, found.queue_family, 0, &queue_);

  VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool.queueFamilyIndex = found.queue_family;
  check(vkCreateCommandPool(device_, &pool, nullptr, &pool_), where_, "vkCreateCommandPool");

  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
  check(vkCreateSemaphore(device_, &semaphore, nullptr, &timeline_), where_, "vkCreateSemaphore");
}

Context::~Context() {
  wait_quietly(submitted_);
  for (const auto& [slots, layout] : layouts_) {
    vkDestroyPipelineLayout(device_, layout.pipeline, nullptr);
    vkDestroyDescriptorSetLayout(device_, layout.set, nullptr);
  }
  vkDestroySemaphore(device_, timeline_, nullptr);
  vkDestroyCommandPool(device_, pool_, nullptr);
  vkDestroyDevice(device_, nullptr);
}

Slots Context::slots(std::span<const hal::Access> bindings) const {
  Slots slots{static_cast<std::uint32_t>(bindings.size()), 0};
  for (std::uint32_t i = 0; i < slots.count; ++i)
    if (uses_texel_buffers_ && bindings[i] == hal::Access::read) slots.texels |= 1u << i;
  return slots;
}

const Layout& Context::layout(const Slots& slots) {
  Layout& made = layouts_[slots];
  if (made.pipeline) return made;
  std::vector<VkDescriptorSetLayoutBinding> bindings;
  for (std::uint32_t i = 0; i < slots.count; ++i)
    bindings.push_back({i, slots.type(i), 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
  VkDescriptorSetLayoutCreateInfo set{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
  set.bindingCount = slots.count;
  set.pBindings = bindings.data();
  if (!made.set)
    check(vkCreateDescriptorSetLayout(device_, &set, nullptr, &made.set), where_,
          "vkCreateDescriptorSetLayout");
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(PushConstants)};
  VkPipelineLayoutCreateInfo layout{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  layout.setLayoutCount = slots.count ? 1 : 0;
  layout.pSetLayouts = &made.set;
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  check(vkCreatePipelineLayout(device_, &layout, nullptr, &made.pipeline), where_, "vkCreatePipelineLayout");
  return made;
}

int Context::memory_type(std::uint32_t allowed, VkMemoryPropertyFlags wanted) const {
  for (std::uint32_t i = 0; i < memory_.memoryTypeCount; ++i)
    if ((allowed >> i & 1) && (memory_.memoryTypes[i].propertyFlags & wanted) == wanted)
      return static_cast<int>(i);
  return -1;
}

VkCommandBuffer Context::new_command_buffer() const {
  VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  info.commandPool = pool_;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  check(vkAllocateCommandBuffers(device_, &info, &commands), where_, "vkAllocateCommandBuffers");
  return commands;
}

void Context::free_command_buffer(VkCommandBuffer commands) const {
  vkFreeCommandBuffers(device_, pool_, 1, &commands);
}

VkEvent Context::new_event() const {
  const VkEventCreateInfo info{VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
  VkEvent event = VK_NULL_HANDLE;
  const VkResult status = vkCreateEvent(device_, &info, nullptr, &event);
  if (status == VK_ERROR_FEATURE_NOT_PRESENT) return VK_NULL_HANDLE;  // a portability subset may lack events
  check(status, where_, "vkCreateEvent");
  return event;
}

void Context::record_event(VkCommandBuffer commands, VkEvent event) const {
  if (event)
    vkCmdSetEvent(commands, event, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT);
}

void Context::free_event(VkEvent event) {
  std::erase_if(pending_, [&](const PendingSubmission& one) { return one.completed == event; });
  vkDestroyEvent(device_, event, nullptr);
}

std::uint64_t Context::submit(VkCommandBuffer commands, VkEvent completed) {
  const std::uint64_t value = submitted_ + 1;
  // An event that is in use cannot be reset.
  const bool in_flight = std::any_of(pending_.begin(), pending_.end(), [&](const PendingSubmission& one) {
    return one.completed == completed;
  });
  if (completed && !in_flight) {
    check(vkResetEvent(device_, completed), where_, "vkResetEvent");
    pending_.push_back({completed, value});
  }
  VkTimelineSemaphoreSubmitInfo timeline{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &value;
  VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO, &timeline};
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &timeline_;
  check(vkQueueSubmit(queue_, 1, &info, VK_NULL_HANDLE), where_, "vkQueueSubmit");
  return submitted_ = value;
}

void Context::wait(std::uint64_t value) {
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &value;
  std::uint64_t seconds = kSecondsBeforeNote;
  for (;; seconds *= 2) {
    const VkResult status = vkWaitSemaphores(device_, &info, seconds * 1'000'000'000);
    check(status, where_, "vkWaitSemaphores");
    if (status == VK_SUCCESS) break;
    std::fprintf(stderr, "note: %s has not finished what was submitted to it for %llu s and is waited for\n",
                 where_.c_str(), static_cast<unsigned long long>(seconds));
  }
  std::erase_if(pending_, [&](const PendingSubmission& one) {
    if (one.value > value) return false;
    const VkResult status = vkGetEventStatus(device_, one.completed);
    check(status, where_, "vkGetEventStatus");
    if (status != VK_EVENT_SET)
      throw hal::DeviceLost(where_, "work that was submitted must have run when the driver says it has",
                            "submission " + std::to_string(one.value) + ", whose last command did not");
    return true;
  });
}

void Context::wait_quietly(std::uint64_t value) const noexcept {
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &value;
  vkWaitSemaphores(device_, &info, UINT64_MAX);
}

}  // namespace meshloom::backends::vulkan
