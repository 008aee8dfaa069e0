#include "backends/vulkan/profile.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace meshloom::backends::vulkan {
namespace {

// Hertz of the host's cores: the highest the kernel names, else what they run at now, else a guess.
double host_hertz(std::string& source) {
  std::ifstream most("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  if (double kilohertz = 0; most >> kilohertz) {
    source = "cpuinfo_max_freq";
    return kilohertz * 1e3;
  }
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("cpu MHz", 0) != 0) continue;
    source = "/proc/cpuinfo";
    return std::stod(line.substr(line.find(':') + 1)) * 1e6;
  }
  source = "a guessed 2.5 GHz";
  return 2.5e9;
}

struct Cores {
  std::int32_t count = 0;
  double lanes = 0, hertz = 0;  // f32 lanes of one core; a typical clock
  std::string source;
};

Cores gpu_cores(VkPhysicalDevice device) {
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  if (has_extension(device, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV sm{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    properties.pNext = &sm;
    vkGetPhysicalDeviceProperties2(device, &properties);
    return {static_cast<std::int32_t>(sm.shaderSMCount), 128, 1.7e9, "VK_NV_shader_sm_builtins"};
  }
  if (has_extension(device, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) {
    VkPhysicalDeviceShaderCorePropertiesAMD core{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD};
    properties.pNext = &core;
    vkGetPhysicalDeviceProperties2(device, &properties);
    return {static_cast<std::int32_t>(core.shaderEngineCount * core.shaderArraysPerEngineCount *
                                      core.computeUnitsPerShaderArray),
            64, 2.2e9, "VK_AMD_shader_core_properties"};
  }
  return {};
}

}  // namespace

bool has_extension(VkPhysicalDevice device, const char* name) {
  std::uint32_t count = 0;
  vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
  vkEnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data());
  return std::any_of(extensions.begin(), extensions.end(), [&](const VkExtensionProperties& extension) {
    return std::string_view(extension.extensionName) == name;
  });
}

hal::Profile own_profile(VkPhysicalDevice device, const hal::DeviceInfo& info) {
  hal::Profile p;
  p.name = info.is_cpu ? "host-vulkan" : "gpu-vulkan";
  p.product = info.name;
  p.kind = info.is_cpu ? hal::ProfileKind::host : hal::ProfileKind::gpu;
  p.memory_bytes = info.limits.memory_bytes;
  p.scratch_bytes = info.limits.max_local_bytes;
  p.max_workgroup = info.limits.max_workgroup;
  p.lanes = info.limits.subgroup;
  for (const char* field : {"memory_bytes", "scratch_bytes", "max_workgroup", "lanes"})
    p.sources[field] = "Vulkan driver";
  if (info.is_cpu) {
    std::string clock;
    const double hertz = host_hertz(clock);
    p.cores = static_cast<std::int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    p.sources["cores"] = "the host's hardware threads";
    // A core of today issues two vector FMAs per cycle.
    p.peak_flops[hal::DType::f32] = 4.0 * p.lanes * p.cores * hertz;
    p.sources["peak_flops"] = "estimate: threads x subgroup size x 2 (FMA) x 2 pipes x clock from " + clock;
    p.memory_bytes_per_second = 40e9;
    p.sources["memory_bytes_per_second"] = "estimate: two channels of DDR4";
    return p;
  }
  if (const Cores cores = gpu_cores(device); cores.count > 0) {
    p.cores = cores.count;
    p.sources["cores"] = cores.source;
    p.peak_flops[hal::DType::f32] = 2 * cores.count * cores.lanes * cores.hertz;
    p.sources["peak_flops"] = "estimate: cores x f32 lanes of the vendor's core x 2 (FMA) x a typical clock";
    p.memory_bytes_per_second = p.peak_flops[hal::DType::f32] / 40;
    p.sources["memory_bytes_per_second"] = "estimate: one byte per 40 FLOP, as GPUs have";
  }
  return p;
}

}  // namespace meshloom::backends::vulkan
