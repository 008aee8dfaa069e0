#include "backends/vulkan/device/context.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "backends/simt/host/quirks.h"
#include "backends/vulkan/device/matrix_api.h"
#include "backends/vulkan/device/status.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

using Clock = std::chrono::steady_clock;

// How long one look at the device may take before the clock is looked at.
constexpr std::uint64_t kNanosecondsPerLook = 100'000'000;
constexpr std::chrono::milliseconds kShortest{1};
constexpr double kSecondsForLost = 1;
// A look that took longer counts as this many seconds: the process was stopped meanwhile.
constexpr double kLongestLook = 1;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

VkDevice make_device(const PhysicalDevice& found, Use use, const std::string& where) {
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
  features.features.pipelineStatisticsQuery = has.pipeline_statistics;

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
  VkPhysicalDeviceShaderIntegerDotProductFeatures dots{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES, nullptr, VK_TRUE};
  if (has.integer_dot) enable(dots, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, nullptr, VK_TRUE};
  if (use == Use::inspect) enable(executables, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
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

Context::Context(std::shared_ptr<Instance> instance, const PhysicalDevice& found, Use use)
    : instance_(std::move(instance)), where_(found.info.id), cache_key_(found.cache_key), use_(use) {
  vkGetPhysicalDeviceMemoryProperties(found.device, &memory_);
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(found.device, &properties);
  max_storage_bytes_ = properties.limits.maxStorageBufferRange;
  max_texel_bytes_ = std::int64_t{4} * properties.limits.maxTexelBufferElements;
  settings_.compiles_late = found.info.is_cpu;
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
  device_ = make_device(found, use, where_);
  if (use != Use::run) return;
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
  if (!drain(submitted_)) {
    // The driver may still be at work with it: it stays.
    new std::shared_ptr<Instance>(std::move(instance_));
    return;
  }
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

int Context::memory_type(std::uint32_t allowed, VkMemoryPropertyFlags wanted,
                         VkMemoryPropertyFlags unwanted) const {
  for (std::uint32_t i = 0; i < memory_.memoryTypeCount; ++i)
    if ((allowed >> i & 1) && (memory_.memoryTypes[i].propertyFlags & (wanted | unwanted)) == wanted)
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

void Context::check_alive() const {
  if (!lost_.empty()) throw hal::DeviceLost(where_, "a device that was lost must be opened again", lost_);
}

void Context::lose(const std::string& rule, const std::string& found) {
  lost_ = found;
  throw hal::DeviceLost(where_, rule, found);
}

std::uint64_t Context::submit(VkCommandBuffer commands, const hal::SubmissionRef& what, const Proof& proof) {
  check_alive();
  if (use_ != Use::run) throw hal::Error(where_, "compiles kernels and never runs them", what.describe());
  const std::uint64_t value = submitted_ + 1;
  VkTimelineSemaphoreSubmitInfo timeline{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &value;
  VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO, &timeline};
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands;
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &timeline_;
  const VkResult status = vkQueueSubmit(queue_, 1, &info, VK_NULL_HANDLE);
  if (status == VK_ERROR_DEVICE_LOST)
    lose("the device stopped answering at vkQueueSubmit", status_name(status) + ", " + what.describe());
  check(status, where_, "vkQueueSubmit");
  pending_.push_back({value, what, proof, Clock::now(), pending_.empty()});
  return submitted_ = value;
}

void Context::wait(std::uint64_t value) {
  check_alive();
  while (!is_known_complete(value)) {
    const Pending one = pending_.front();
    await(one);
    check_ran(one);
    pending_.pop_front();
  }
}

void Context::await(const Pending& one) {
  const std::string what = one.what.describe();
  const auto lost = [&](VkResult status, const char* call) {
    if (status == VK_ERROR_DEVICE_LOST)
      lose(std::string("the device stopped answering at ") + call, status_name(status) + ", " + what);
    check(status, where_, call);
  };
  std::uint64_t reached = 0;
  lost(vkGetSemaphoreCounterValue(device_, timeline_, &reached), "vkGetSemaphoreCounterValue");
  if (reached >= one.value) {
    one.what.measured(-1);
    return;
  }
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &one.value;
  const double limit = settings_.limit_of(one.what.predicted(), one.what.ran_before());
  for (double waited = 0;;) {
    const Clock::time_point before = Clock::now();
    const VkResult status = vkWaitSemaphores(device_, &info, kNanosecondsPerLook);
    lost(status, "vkWaitSemaphores");
    const Clock::time_point now = Clock::now();
    if (status == VK_SUCCESS) {
      // Between the end of the one before and this one's the device had nothing else to do.
      const bool known = one.was_idle || seen_ + 1 == one.value;
      const Clock::time_point from = one.was_idle ? one.submitted : std::max(one.submitted, seen_at_);
      one.what.measured(known ? seconds_between(from, now) : -1);
      seen_ = one.value;
      seen_at_ = now;
      return;
    }
    waited += std::min(std::max(seconds_between(before, now), 1e-3), kLongestLook);
    if (limit >= 0 && waited > limit)
      lose("the device must finish what is submitted to it; " + hal::waited_text(limit), "no end of " + what);
    // A driver may return at once.
    if (now - before < kShortest) std::this_thread::sleep_for(kShortest);
  }
}

void Context::check_ran(const Pending& one) {
  constexpr const char* kRule = "work that was submitted must have run when the driver says it has";
  const Stamp& stamp = one.proof.stamp;
  if (stamp.count && static_cast<std::int32_t>(*stamp.count - stamp.expected) < 0)
    lose(kRule, one.what.describe() + ", whose last command did not");
  // A list that was submitted again meanwhile has begun to count anew: its last submission is asked.
  const auto counts_anew = [&](const Pending& later) {
    return later.value > one.value && later.proof.counts == one.proof.counts &&
           later.proof.query == one.proof.query;
  };
  if (!one.proof.counts || std::any_of(pending_.begin(), pending_.end(), counts_anew)) return;
  std::uint64_t invocations = 0;
  check(vkGetQueryPoolResults(device_, one.proof.counts, one.proof.query, 1, sizeof invocations, &invocations,
                              sizeof invocations, VK_QUERY_RESULT_64_BIT),
        where_, "vkGetQueryPoolResults");
  if (invocations < one.proof.invocations)
    lose(kRule, one.what.describe() + ", of whose " + std::to_string(one.proof.invocations) +
                    " invocations of kernels only " + std::to_string(invocations) + " ran");
}

bool Context::drain(std::uint64_t value) noexcept {
  if (abandoned_) return false;
  if (use_ != Use::run) return true;
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &value;
  double predicted = 0;
  bool ran_before = true;
  for (const Pending& one : pending_) {
    predicted += one.what.predicted();
    ran_before = ran_before && one.what.ran_before();
  }
  // Of a device that did not answer before, no answer is expected.
  const double limit = lost_.empty() ? settings_.limit_of(predicted, ran_before) : kSecondsForLost;
  for (double waited = 0;;) {
    const Clock::time_point before = Clock::now();
    const VkResult status = vkWaitSemaphores(device_, &info, kNanosecondsPerLook);
    if (status != VK_TIMEOUT) return true;  // done, or the device runs nothing any more
    const Clock::time_point now = Clock::now();
    waited += std::min(std::max(seconds_between(before, now), 1e-3), kLongestLook);
    if (limit >= 0 && waited > limit) {
      abandoned_ = true;
      return false;
    }
    if (now - before < kShortest) std::this_thread::sleep_for(kShortest);
  }
}

}  // namespace meshloom::backends::vulkan
