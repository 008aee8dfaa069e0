#include "backends/vulkan/device/enumerate.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "backends/vulkan/device/matrix_unit.h"
#include "backends/vulkan/device/profile.h"

namespace meshloom::backends::vulkan {
namespace {

std::string version_text(std::uint32_t version) {
  return std::to_string(VK_API_VERSION_MAJOR(version)) + "." + std::to_string(VK_API_VERSION_MINOR(version)) +
         "." + std::to_string(VK_API_VERSION_PATCH(version));
}

std::string vendor_name(std::uint32_t id) {
  switch (id) {
    case 0x10de:
      return "NVIDIA";
    case 0x1002:
      return "AMD";
    case 0x8086:
      return "Intel";
    case 0x13b5:
      return "Arm";
    case 0x106b:
      return "Apple";
    case 0x5143:
      return "Qualcomm";
    case 0x1ae0:
      return "Google";
    case VK_VENDOR_ID_MESA:
      return "Mesa";
    default:
      return "vendor " + std::to_string(id);
  }
}

std::vector<VkQueueFamilyProperties> queue_families(VkPhysicalDevice device) {
  std::uint32_t count = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  return families;
}

// A queue family with compute, preferably without graphics, so that the desktop keeps its own queue. -1 when there is
// none.
int compute_family(VkPhysicalDevice device) {
  const std::vector<VkQueueFamilyProperties> families = queue_families(device);
  int best = -1;
  for (std::size_t i = 0; i < families.size(); ++i) {
    if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
    if (!(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT)) return static_cast<int>(i);
    if (best < 0) best = static_cast<int>(i);
  }
  return best;
}

struct Properties {
  VkPhysicalDeviceProperties2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  VkPhysicalDeviceVulkan11Properties v11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
  VkPhysicalDeviceVulkan12Properties v12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
  VkPhysicalDeviceMaintenance4Properties maintenance4{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};

  explicit Properties(VkPhysicalDevice device) {
    all.pNext = &v11;
    v11.pNext = &v12;
    vkGetPhysicalDeviceProperties(device, &all.properties);
    if (all.properties.apiVersion >= VK_API_VERSION_1_3 ||
        has_extension(device, VK_KHR_MAINTENANCE_4_EXTENSION_NAME))
      v12.pNext = &maintenance4;
    vkGetPhysicalDeviceProperties2(device, &all);
  }
};

std::int64_t clamped(VkDeviceSize size) {
  return static_cast<std::int64_t>(std::min<VkDeviceSize>(size, INT64_MAX));
}

HeapMemory query_memory(VkPhysicalDevice device, const Properties& properties, bool null_hardware) {
  if (properties.all.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU)
    return {host_memory(), host_memory()};
  const bool says_free = !null_hardware && has_extension(device, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  if (says_free) memory.pNext = &budget;
  vkGetPhysicalDeviceMemoryProperties2(device, &memory);
  return heap_memory(memory.memoryProperties, says_free ? &budget : nullptr);
}

void fill_limits(const HeapMemory& memory, const Properties& properties, hal::Limits& limits) {
  const VkPhysicalDeviceLimits& given = properties.all.properties.limits;
  limits.memory_bytes = memory.free;
  limits.max_allocation_bytes =
      std::min(clamped(properties.v11.maxMemoryAllocationSize), limits.memory_bytes);
  if (properties.maintenance4.maxBufferSize > 0)
    limits.max_allocation_bytes =
        std::min(limits.max_allocation_bytes, clamped(properties.maintenance4.maxBufferSize));
  limits.max_local_bytes = given.maxComputeSharedMemorySize;
  limits.max_workgroup =
      static_cast<std::int32_t>(std::min<std::uint32_t>(given.maxComputeWorkGroupInvocations, INT_MAX));
  for (std::size_t d = 0; d < 3; ++d)
    limits.max_groups[d] = std::min<std::int64_t>(given.maxComputeWorkGroupCount[d], INT_MAX);
  limits.subgroup = static_cast<std::int32_t>(properties.v11.subgroupSize);
  // 16 would be enough for the kernels' widest load; a larger alignment keeps ranges in different cache lines.
  limits.offset_alignment = 256;
}

Features query_features(VkPhysicalDevice device, bool& device_address, bool& timeline) {
  VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  VkPhysicalDeviceVulkan11Features v11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
  VkPhysicalDeviceVulkan12Features v12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  all.pNext = &v11;
  v11.pNext = &v12;
  vkGetPhysicalDeviceFeatures2(device, &all);
  device_address = v12.bufferDeviceAddress;
  timeline = v12.timelineSemaphore;
  Features features;
  features.storage_16bit = v11.storageBuffer16BitAccess;
  features.storage_8bit = v12.storageBuffer8BitAccess;
  features.float16 = v12.shaderFloat16;
  features.int8 = v12.shaderInt8;
  features.int16 = all.features.shaderInt16;
  features.int64 = all.features.shaderInt64;
  features.float64 = all.features.shaderFloat64;
  features.pipeline_statistics = all.features.pipelineStatisticsQuery;
  features.executable_info =
      has_extension(device, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME) &&
      features_of<VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR>(
          device, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR)
          .pipelineExecutableInfo;
  features.integer_dot = has_extension(device, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME) &&
                         features_of<VkPhysicalDeviceShaderIntegerDotProductFeatures>(
                             device, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES)
                             .shaderIntegerDotProduct;
  features.portability_subset = has_extension(device, "VK_KHR_portability_subset");
  return features;
}

std::vector<std::string> feature_names(const Features& features, const Properties& properties) {
  std::vector<std::string> names{"buffer-device-address", "timeline-semaphore"};
  const std::pair<bool, const char*> optional[] = {
      {features.storage_16bit, "f16-storage"},
      {features.storage_8bit, "i8-storage"},
      {features.float16, "f16-arithmetic"},
      {features.int8, "i8-arithmetic"},
      {features.integer_dot, "i8-dot"},
      {features.int16, "i16-arithmetic"},
      {features.int64, "i64-arithmetic"},
      {features.float64, "f64-arithmetic"},
      {(properties.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) != 0,
       "subgroup-arithmetic"},
      {(properties.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_BALLOT_BIT) != 0, "subgroup-ballot"},
      {(properties.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0,
       "subgroup-shuffle"},
      {(properties.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_VOTE_BIT) != 0, "subgroup-vote"},
      {true, "overlapping-dispatches"},  // nothing but barriers orders them
      {features.cooperative_matrix, "cooperative-matrix"},
      {features.bfloat16_matrix, "bf16-matrix"},
      {features.subgroup_size_control, "subgroup-size-control"}};
  for (const auto& [there, name] : optional)
    if (there) names.emplace_back(name);
  names.push_back("subgroup=" + std::to_string(properties.v11.subgroupSize));
  return names;
}

std::uint64_t timestamp_mask(VkPhysicalDevice device, std::uint32_t family) {
  const std::uint32_t bits = queue_families(device).at(family).timestampValidBits;
  return bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

int order_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return 4;
    default:
      return 3;
  }
}

std::string free_text(const HeapMemory& memory) {
  constexpr double kGib = 1 << 30;
  char text[100];
  std::snprintf(text, sizeof text, "free now of %.2f GiB, by %s", static_cast<double>(memory.bytes) / kGib,
                VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  return text;
}

}  // namespace

bool is_null_hardware(std::string_view name, VkDriverId driver) {
  const auto is_set = [](const char* variable) {
    const char* value = std::getenv(variable);
    return value && *value;
  };
  if (driver == VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA) return is_set("INTEL_SHIM_FAMILY");
  return driver == VK_DRIVER_ID_MESA_RADV &&
         (name.starts_with("Null hardware") || is_set("RADV_FORCE_FAMILY"));
}

HeapMemory heap_memory(const VkPhysicalDeviceMemoryProperties& memory,
                       const VkPhysicalDeviceMemoryBudgetPropertiesEXT* budget) {
  HeapMemory largest;
  for (std::uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    if (!(memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)) continue;
    const std::int64_t bytes = clamped(memory.memoryHeaps[i].size);
    // 0 means that the driver does not know.
    const bool known = budget != nullptr && budget->heapBudget[i] > 0;
    const std::int64_t free = known ? std::min(bytes, clamped(budget->heapBudget[i])) : bytes;
    if (bytes > largest.bytes) largest = {bytes, free};
  }
  return largest;
}

std::vector<PhysicalDevice> enumerate_devices(VkInstance instance, std::string& why_none) {
  why_none.clear();
  std::uint32_t count = 0;
  std::vector<VkPhysicalDevice> devices;
  if (vkEnumeratePhysicalDevices(instance, &count, nullptr) == VK_SUCCESS) {
    devices.resize(count);
    vkEnumeratePhysicalDevices(instance, &count, devices.data());
    devices.resize(count);
  }
  std::vector<std::pair<int, PhysicalDevice>> found;
  std::string refused;
  for (VkPhysicalDevice device : devices) {
    VkPhysicalDeviceProperties basic;
    vkGetPhysicalDeviceProperties(device, &basic);
    const auto refuse = [&](const std::string& reason) {
      refused += "; " + std::string(basic.deviceName) + ": " + reason;
    };
    if (basic.apiVersion < VK_API_VERSION_1_2) {
      refuse("Vulkan 1.2 is needed and it has " + version_text(basic.apiVersion) +
             ", a newer driver may help");
      continue;
    }
    const int family = compute_family(device);
    if (family < 0) {
      refuse("it has no compute queue");
      continue;
    }
    bool device_address = false, timeline = false;
    const Features features = query_features(device, device_address, timeline);
    if (!device_address || !timeline) {
      refuse(std::string("it lacks the feature ") +
             (device_address ? "timelineSemaphore" : "bufferDeviceAddress") + ", a newer driver may help");
      continue;
    }
    const Properties properties(device);
    PhysicalDevice item{device, static_cast<std::uint32_t>(family), basic.apiVersion, features, {}, {}};
    hal::DeviceInfo& info = item.info;
    MatrixUnit matrices = matrix_unit(instance, device);
    const SubgroupSizes subgroups = subgroup_sizes(device);
    item.features.cooperative_matrix = !matrices.shapes.empty();
    item.features.bfloat16_matrix = matrices.bfloat16;
    item.features.subgroup_size_control = subgroups.max > 0;
    info.backend = "vulkan";
    info.name = basic.deviceName;
    info.vendor = vendor_name(basic.vendorID);
    info.driver = std::string(properties.v12.driverName) + " " + properties.v12.driverInfo;
    info.api = "Vulkan " + version_text(basic.apiVersion);
    info.host_visible = true;  // the specification promises a memory type for it
    info.is_cpu = basic.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    item.timestamp_mask = timestamp_mask(device, item.queue_family);
    if (item.timestamp_mask != 0) item.timestamp_seconds = basic.limits.timestampPeriod * 1e-9;
    info.timestamps = item.timestamp_seconds > 0;
    info.computes = !is_null_hardware(info.name, properties.v12.driverID);
    const HeapMemory memory = query_memory(device, properties, !info.computes);
    fill_limits(memory, properties, info.limits);
    info.limits.matrix_shapes = std::move(matrices.shapes);
    info.limits.min_subgroup = static_cast<std::int32_t>(subgroups.min);
    info.limits.max_subgroup = static_cast<std::int32_t>(subgroups.max);
    info.features = feature_names(item.features, properties);
    info.profile = profile_of(device, info);
    if (memory.free < memory.bytes) info.profile.sources["memory_bytes"] = free_text(memory);
    // pipelineCacheUUID alone is not enough: some drivers never change it.
    item.cache_key = info.name + "\n" + std::to_string(basic.vendorID) + ":" +
                     std::to_string(basic.deviceID) + "\n" + info.driver + "\n" +
                     std::to_string(basic.driverVersion) + "\n" + info.api + "\n";
    for (std::uint8_t byte : basic.pipelineCacheUUID) item.cache_key += std::to_string(byte) + ".";
    found.emplace_back(order_of(basic.deviceType), std::move(item));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<PhysicalDevice> out;
  for (auto& [order, item] : found) {
    item.info.id = "vulkan:" + std::to_string(out.size());
    out.push_back(std::move(item));
  }
  if (out.empty())
    why_none = devices.empty()
                   ? "no Vulkan device was found: install mesa-vulkan-drivers (AMD, Intel, and lavapipe on "
                     "the CPU) or the GPU vendor's driver; VK_DRIVER_FILES names a driver by hand"
                   : "no Vulkan device is usable" + refused;
  return out;
}

}  // namespace meshloom::backends::vulkan
