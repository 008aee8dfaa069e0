#include "backends/vulkan/inspect/statistics.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <vector>

#include "backends/vulkan/device/status.h"
#include "backends/vulkan/inspect/anv_listing.h"
#include "backends/vulkan/inspect/rdna_model.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

constexpr std::int64_t kAnvUnit = 32;  // bytes in which ANV counts registers, of Xe2 too

template <typename Function>
Function function_of(VkDevice device, const char* name, const std::string& where) {
  const auto found = reinterpret_cast<Function>(vkGetDeviceProcAddr(device, name));
  if (!found) throw hal::Error(where, "the driver must have " + std::string(name), "none");
  return found;
}

double value_of(const VkPipelineExecutableStatisticKHR& statistic) {
  switch (statistic.format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
      return statistic.value.b32 ? 1 : 0;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
      return static_cast<double>(statistic.value.i64);
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
      return static_cast<double>(statistic.value.u64);
    default:
      return statistic.value.f64;
  }
}

// "Assembly" -> ".asm", "NIR Shader(s)" -> ".nir-shader-s"
std::string suffix_of(const std::string& name) {
  if (name == "Assembly" || name == "GEN Assembly") return ".asm";
  std::string suffix = ".";
  for (char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      suffix += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (suffix.back() != '-' && suffix.size() > 1)
      suffix += '-';
  }
  while (suffix.back() == '-') suffix.pop_back();
  return suffix;
}

std::vector<hal::InspectedFile> texts_of(VkDevice device, const VkPipelineExecutableInfoKHR& which,
                                         const std::string& where) {
  const auto get = function_of<PFN_vkGetPipelineExecutableInternalRepresentationsKHR>(
      device, "vkGetPipelineExecutableInternalRepresentationsKHR", where);
  std::uint32_t count = 0;
  check(get(device, &which, &count, nullptr), where, "vkGetPipelineExecutableInternalRepresentationsKHR");
  std::vector<VkPipelineExecutableInternalRepresentationKHR> listed(
      count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR});
  check(get(device, &which, &count, listed.data()), where,
        "vkGetPipelineExecutableInternalRepresentationsKHR");
  std::vector<std::string> texts(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    texts[i].resize(listed[i].dataSize);
    listed[i].pData = texts[i].data();
  }
  check(get(device, &which, &count, listed.data()), where,
        "vkGetPipelineExecutableInternalRepresentationsKHR");
  std::vector<hal::InspectedFile> files;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (listed[i].isText) texts[i].resize(::strnlen(texts[i].data(), texts[i].size()));
    if (!texts[i].empty()) files.push_back({suffix_of(listed[i].name), std::move(texts[i])});
  }
  return files;
}

const hal::DriverStatistic* find(const hal::Inspection& inspection,
                                 std::initializer_list<const char*> names) {
  for (const char* name : names)
    for (const hal::DriverStatistic& one : inspection.statistics)
      if (one.name == name) return &one;
  return nullptr;
}

// The assembly among the texts of a pipeline; nullptr = this build of the driver cannot disassemble.
const std::string* listing_of(const hal::Inspection& inspection) {
  const auto listing = std::find_if(inspection.files.begin(), inspection.files.end(),
                                    [](const hal::InspectedFile& file) { return file.suffix == ".asm"; });
  // What a RADV says whose LLVM is older than the GPU; its own representation follows.
  const bool readable = listing != inspection.files.end() &&
                        listing->bytes.find("disassembly is not supported") == std::string::npos;
  return readable ? &listing->bytes : nullptr;
}

void read_listing(hal::Inspection& inspection, const std::array<std::uint32_t, 3>& workgroup,
                  const std::string& device_name) {
  const rdna::Family* radeon = rdna::family_of(device_name);
  const simt::isa::Xe* arc = anv::family_of(device_name);
  if (!radeon && !arc) {
    inspection.why_no_loops =
        "only listings of RADV for RDNA2, RDNA3 and RDNA4 and of ANV for Xe-HPG and Xe2 are read, not those "
        "of " +
        device_name;
    return;
  }
  if (arc && inspection.registers)
    *inspection.registers =
        (*inspection.registers * kAnvUnit + arc->register_bytes - 1) / arc->register_bytes;
  const std::int64_t local = inspection.local_bytes.value_or(0), invocations = hal::invocations(workgroup);
  if (radeon && inspection.registers)
    inspection.waves =
        rdna::waves_of(*radeon, *inspection.registers, local, invocations, inspection.subgroup);
  if (arc)  // ANV gives each thread 128 registers
    inspection.waves = simt::isa::xe_waves_of(*arc, 0, local, invocations, inspection.subgroup);
  const std::string* listing = listing_of(inspection);
  if (!listing) {
    inspection.why_no_loops = "this build of the driver cannot disassemble code of " +
                              std::string(radeon ? radeon->name : arc->family);
    return;
  }
  try {
    inspection.loops = radeon ? rdna::inspect_loops(*listing, *radeon, inspection.subgroup)
                              : anv::inspect_loops(*listing, *arc);
  } catch (const hal::Error& error) {
    inspection.why_no_loops = error.what();
  }
}

}  // namespace

void read_statistics(hal::Inspection& inspection) {
  const auto integer = [&](std::optional<std::int64_t>& field, std::initializer_list<const char*> names) {
    if (const hal::DriverStatistic* one = find(inspection, names))
      field = static_cast<std::int64_t>(one->value);
  };
  // The words of RADV, of Intel's ANV and of NVIDIA's driver, in this order.
  integer(inspection.registers, {"VGPRs", "Max live registers", "Register Count"});
  integer(inspection.spilled, {"Spilled VGPRs", "Spills", "Spill Count"});
  integer(inspection.local_bytes, {"LDS size", "LDS Size", "Workgroup Memory Size", "Shared Memory Size"});
  integer(inspection.code_bytes, {"Code size", "Code Size", "Binary Size"});
  if (const hal::DriverStatistic* waves = find(inspection, {"Subgroups per SIMD"}))
    inspection.waves = waves->value;
  if (const hal::DriverStatistic* scratch =
          find(inspection, {"Scratch size", "Scratch Memory Size", "Stack Size", "Local Memory Size"})) {
    // RADV says it of a whole wave.
    const bool of_subgroup = scratch->about.find("per subgroup") != std::string::npos;
    inspection.scratch_bytes = static_cast<std::int64_t>(
        scratch->value / (of_subgroup && inspection.subgroup > 0 ? inspection.subgroup : 1));
  }
}

hal::Inspection inspect_pipeline(VkDevice device, VkPipeline pipeline,
                                 const std::array<std::uint32_t, 3>& workgroup,
                                 const std::string& device_name, const std::string& where) {
  const VkPipelineInfoKHR whole{VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, nullptr, pipeline};
  const auto get_executables = function_of<PFN_vkGetPipelineExecutablePropertiesKHR>(
      device, "vkGetPipelineExecutablePropertiesKHR", where);
  const auto get_statistics = function_of<PFN_vkGetPipelineExecutableStatisticsKHR>(
      device, "vkGetPipelineExecutableStatisticsKHR", where);
  std::uint32_t count = 0;
  check(get_executables(device, &whole, &count, nullptr), where, "vkGetPipelineExecutablePropertiesKHR");
  std::vector<VkPipelineExecutablePropertiesKHR> executables(
      count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR});
  check(get_executables(device, &whole, &count, executables.data()), where,
        "vkGetPipelineExecutablePropertiesKHR");
  if (count == 0) throw hal::Error(where, "the driver must say what it compiled", "no executable");
  // A compute pipeline is one. Intel's compiler may give one for each width, the widest last.
  const VkPipelineExecutableInfoKHR which{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, nullptr, pipeline,
                                          count - 1};
  hal::Inspection found;
  found.subgroup = static_cast<std::int32_t>(executables[count - 1].subgroupSize);
  check(get_statistics(device, &which, &count, nullptr), where, "vkGetPipelineExecutableStatisticsKHR");
  std::vector<VkPipelineExecutableStatisticKHR> statistics(
      count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
  check(get_statistics(device, &which, &count, statistics.data()), where,
        "vkGetPipelineExecutableStatisticsKHR");
  for (std::uint32_t i = 0; i < count; ++i)
    found.statistics.push_back({statistics[i].name, statistics[i].description, value_of(statistics[i])});
  read_statistics(found);
  found.files = texts_of(device, which, where);
  read_listing(found, workgroup, device_name);
  return found;
}

}  // namespace meshloom::backends::vulkan
