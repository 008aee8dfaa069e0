#include "backends/vulkan/device/profile.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/simt/own_profile.h"

namespace meshloom::backends::vulkan {
namespace {

// The clock of the host's cores in hertz: the maximum that the kernel reports, else the current one, else a guess.
double host_hertz(std::string& source) {
  std::ifstream maximum("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  if (double kilohertz = 0; maximum >> kilohertz) {
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

// Vulkan reports neither clocks nor, without vendors' extensions, cores.
simt::DriverFacts gpu_facts(VkPhysicalDevice device) {
  simt::DriverFacts facts;
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  if (has_extension(device, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV sm{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    properties.pNext = &sm;
    vkGetPhysicalDeviceProperties2(device, &properties);
    facts.cores = static_cast<std::int32_t>(sm.shaderSMCount);
    facts.cores_source = VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME;
    facts.flops_per_core_cycle = 2 * 128;
    facts.hertz = 1.7e9;
  } else if (has_extension(device, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) {
    VkPhysicalDeviceShaderCorePropertiesAMD core{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD};
    properties.pNext = &core;
    vkGetPhysicalDeviceProperties2(device, &properties);
    facts.cores = static_cast<std::int32_t>(core.shaderEngineCount * core.shaderArraysPerEngineCount *
                                            core.computeUnitsPerShaderArray);
    facts.cores_source = VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME;
    facts.flops_per_core_cycle = 2 * 64;
    facts.hertz = 2.2e9;
  }
  facts.flops_source = "cores x f32 lanes of the vendor's core x 2 (FMA) x a typical clock";
  return facts;
}

simt::DriverFacts host_facts(std::int32_t lanes) {
  simt::DriverFacts facts;
  std::string clock;
  facts.hertz = host_hertz(clock);
  facts.cores = static_cast<std::int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  facts.cores_source = "the host's hardware threads";
  facts.flops_per_core_cycle = 4.0 * lanes;  // current cores issue two vector FMAs per cycle
  facts.flops_source = "threads x subgroup size x 2 (FMA) x 2 pipes x clock from " + clock;
  return facts;
}

}  // namespace

std::int64_t host_memory() {
  auto bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    if (std::int64_t limit = 0; file >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

bool has_extension(VkPhysicalDevice device, const char* name) {
  std::uint32_t count = 0;
  vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
  vkEnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data());
  return std::any_of(extensions.begin(), extensions.end(), [&](const VkExtensionProperties& extension) {
    return std::string_view(extension.extensionName) == name;
  });
}

hal::Profile profile_of(VkPhysicalDevice device, const hal::DeviceInfo& info) {
  simt::DriverFacts facts = info.is_cpu ? host_facts(info.limits.subgroup) : gpu_facts(device);
  facts.lanes = info.limits.subgroup;
  facts.driver = "Vulkan driver";
  hal::Profile profile = simt::own_profile(info, facts);
  if (info.is_cpu) profile.sources["memory_bytes"] = "the host's memory";
  return profile;
}

}  // namespace meshloom::backends::vulkan
