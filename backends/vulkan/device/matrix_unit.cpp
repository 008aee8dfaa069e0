#include "backends/vulkan/device/matrix_unit.h"

#include <algorithm>
#include <optional>

#include "backends/vulkan/device/matrix_api.h"
#include "backends/vulkan/device/profile.h"

namespace meshloom::backends::vulkan {
namespace {

std::optional<hal::DType> dtype_of(VkComponentTypeKHR type) {
  switch (static_cast<int>(type)) {
    case VK_COMPONENT_TYPE_FLOAT16_KHR:
      return hal::DType::f16;
    case VK_COMPONENT_TYPE_FLOAT32_KHR:
      return hal::DType::f32;
    case VK_COMPONENT_TYPE_SINT8_KHR:
      return hal::DType::i8;
    case VK_COMPONENT_TYPE_SINT32_KHR:
      return hal::DType::i32;
    case VK_COMPONENT_TYPE_UINT8_KHR:
      return hal::DType::u8;
    case VK_COMPONENT_TYPE_UINT32_KHR:
      return hal::DType::u32;
    case static_cast<int>(VK_COMPONENT_TYPE_BFLOAT16_KHR):
      return hal::DType::bf16;
    default:
      return std::nullopt;
  }
}

bool can_use_matrices(VkPhysicalDevice device) {
  if (!has_extension(device, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)) return false;
  const auto v11 = features_of<VkPhysicalDeviceVulkan11Features>(
      device, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
  const auto v12 = features_of<VkPhysicalDeviceVulkan12Features>(
      device, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  VkPhysicalDeviceFeatures basic;
  vkGetPhysicalDeviceFeatures(device, &basic);
  return v11.storageBuffer16BitAccess && v12.shaderFloat16 && v12.vulkanMemoryModel && basic.shaderInt16 &&
         features_of<VkPhysicalDeviceCooperativeMatrixFeaturesKHR>(
             device, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR)
             .cooperativeMatrix;
}

bool can_use_bfloat16(VkPhysicalDevice device) {
  return has_extension(device, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME) &&
         features_of<VkPhysicalDeviceShaderBfloat16FeaturesKHR>(
             device, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR)
             .shaderBFloat16CooperativeMatrix;
}

}  // namespace

MatrixUnit matrix_unit(VkInstance instance, VkPhysicalDevice device) {
  MatrixUnit unit;
  if (!can_use_matrices(device)) return unit;
  const auto query = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
      vkGetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  std::uint32_t count = 0;
  if (!query || query(device, &count, nullptr) != VK_SUCCESS) return unit;
  VkCooperativeMatrixPropertiesKHR blank{};
  blank.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  std::vector<VkCooperativeMatrixPropertiesKHR> listed(count, blank);
  if (query(device, &count, listed.data()) != VK_SUCCESS) return unit;
  listed.resize(count);
  const bool bfloat16 = can_use_bfloat16(device);
  for (const VkCooperativeMatrixPropertiesKHR& item : listed) {
    const std::optional<hal::DType> in = dtype_of(item.AType), sum = dtype_of(item.CType);
    if (!in || !sum || item.BType != item.AType || item.ResultType != item.CType ||
        item.saturatingAccumulation || item.scope != VK_SCOPE_SUBGROUP_KHR ||
        (*in == hal::DType::bf16 && !bfloat16))
      continue;
    const hal::MatrixShape shape{static_cast<std::int32_t>(item.MSize), static_cast<std::int32_t>(item.NSize),
                                 static_cast<std::int32_t>(item.KSize), *in, *sum};
    if (std::find(unit.shapes.begin(), unit.shapes.end(), shape) != unit.shapes.end()) continue;
    unit.shapes.push_back(shape);
    unit.bfloat16 = unit.bfloat16 || *in == hal::DType::bf16;
  }
  return unit;
}

SubgroupSizes subgroup_sizes(VkPhysicalDevice device) {
  VkPhysicalDeviceProperties basic;
  vkGetPhysicalDeviceProperties(device, &basic);
  if (basic.apiVersion < VK_API_VERSION_1_3 &&
      !has_extension(device, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
    return {};
  const auto features = features_of<VkPhysicalDeviceSubgroupSizeControlFeatures>(
      device, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
  if (!features.subgroupSizeControl || !features.computeFullSubgroups) return {};
  VkPhysicalDeviceSubgroupSizeControlProperties sizes{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES, nullptr, 0, 0, 0, 0};
  VkPhysicalDeviceProperties2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &sizes, {}};
  vkGetPhysicalDeviceProperties2(device, &all);
  if (!(sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT)) return {};
  return {sizes.minSubgroupSize, sizes.maxSubgroupSize};
}

}  // namespace meshloom::backends::vulkan
