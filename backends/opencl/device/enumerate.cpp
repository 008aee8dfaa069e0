#include "backends/opencl/device/enumerate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <span>

#include "backends/opencl/device/dpas.h"
#include "backends/opencl/device/mma.h"
#include "backends/simt/host/quirks.h"
#include "backends/simt/own_profile.h"

namespace meshloom::backends::opencl {
namespace {

template <typename T>
T number(cl_device_id device, cl_device_info what) {
  T value{};
  if (clGetDeviceInfo(device, what, sizeof value, &value, nullptr) != CL_SUCCESS) return T{};
  return value;
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\0' || std::isspace(static_cast<unsigned char>(text.back()))))
    text.pop_back();
  return text;
}

std::string text_of(cl_device_id device, cl_device_info what) {
  std::size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS) return {};
  std::string text(size, '\0');
  if (clGetDeviceInfo(device, what, size, text.data(), nullptr) != CL_SUCCESS) return {};
  return trimmed(text);
}

std::string text_of(cl_platform_id platform, cl_platform_info what) {
  std::size_t size = 0;
  if (clGetPlatformInfo(platform, what, 0, nullptr, &size) != CL_SUCCESS) return {};
  std::string text(size, '\0');
  if (clGetPlatformInfo(platform, what, size, text.data(), nullptr) != CL_SUCCESS) return {};
  return trimmed(text);
}

bool has_word(const std::string& words, const std::string& word) {
  return (" " + words + " ").find(" " + word + " ") != std::string::npos;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The f32 lanes of one compute unit of a GPU. Vendors define the unit differently.
std::int32_t gpu_lanes(const std::string& vendor) {
  if (contains(vendor, "NVIDIA")) return 128;  // an SM since Maxwell, but for P100, V100 and A100 (64)
  if (contains(vendor, "Intel")) return 8;     // an execution unit
  return 64;                                   // an AMD compute unit; a guess elsewhere
}

hal::Profile profile_of(cl_device_id device, const hal::DeviceInfo& info) {
  simt::DriverFacts facts;
  facts.driver = facts.cores_source = "OpenCL driver";
  facts.cores = static_cast<std::int32_t>(number<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS));
  facts.hertz = 1e6 * number<cl_uint>(device, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  if (info.is_cpu) {
    facts.lanes = static_cast<std::int32_t>(number<cl_uint>(device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT));
    facts.flops_per_core_cycle = 4.0 * facts.lanes;  // current cores issue two vector FMAs per cycle
    facts.flops_source = "compute units x native float width x 2 (FMA) x 2 pipes x maximum clock";
  } else {
    facts.lanes = info.limits.subgroup;
    facts.flops_per_core_cycle = 2.0 * gpu_lanes(info.vendor);
    facts.flops_source = "compute units x f32 lanes of the vendor's unit x 2 (FMA) x maximum clock";
  }
  return simt::own_profile(info, facts);
}

// NVIDIA's tensor cores multiply bf16, f16 and i8 by mma.sync from compute capability 8.0 on; drivers list no shapes.
void fill_nvidia(cl_device_id device, hal::DeviceInfo& info) {
  constexpr cl_device_info kCapabilityMajor = 0x4000, kCapabilityMinor = 0x4001;
  const auto major = number<cl_uint>(device, kCapabilityMajor);
  const auto minor = number<cl_uint>(device, kCapabilityMinor);
  info.features.push_back("compute-capability=" + std::to_string(major) + "." + std::to_string(minor));
  // PTX ISA, dp4a.
  if (10 * major + minor >= 61) info.features.emplace_back("i8-dot");
  if (major < 8) return;
  for (const hal::DType in : {hal::DType::bf16, hal::DType::f16, hal::DType::i8})
    info.limits.matrix_shapes.push_back(mma_shape(in));
}

// Intel's matrix units need subgroups of the smallest size that the GPU has, which is the number of their columns.
void fill_intel(cl_device_id device, hal::DeviceInfo& info) {
  constexpr cl_device_info kSubgroupSizes = 0x4108;
  std::array<std::size_t, 8> sizes{};
  std::size_t bytes = 0;
  if (clGetDeviceInfo(device, kSubgroupSizes, sizeof sizes, sizes.data(), &bytes) != CL_SUCCESS) return;
  const std::span<const std::size_t> listed = std::span(sizes).first(bytes / sizeof sizes[0]);
  const auto lanes = std::min_element(listed.begin(), listed.end());
  if (lanes == listed.end() || (*lanes != 8 && *lanes != 16)) return;
  for (const hal::DType in : {hal::DType::bf16, hal::DType::f16, hal::DType::i8})
    info.limits.matrix_shapes.push_back(dpas_shape(static_cast<std::int32_t>(*lanes), in));
}

// What is free now, by cl_amd_device_attribute_query; 0 = the driver does not know. Other vendors have no such question.
std::int64_t free_bytes(cl_device_id device) {
  constexpr cl_device_info kGlobalFreeMemoryAmd = 0x4039;
  std::array<std::size_t, 2> kib{};  // all that is free, and its largest block
  std::size_t size = 0;
  if (clGetDeviceInfo(device, kGlobalFreeMemoryAmd, sizeof kib, kib.data(), &size) != CL_SUCCESS ||
      size < sizeof kib[0])
    return 0;
  return static_cast<std::int64_t>(std::min<std::size_t>(kib[0], INT64_MAX >> 10)) << 10;
}

std::string free_text(std::int64_t all) {
  constexpr double kGib = 1 << 30;
  std::array<char, 100> text{};
  std::snprintf(text.data(), text.size(), "free now of %.2f GiB, by cl_amd_device_attribute_query",
                static_cast<double>(all) / kGib);
  return text.data();
}

hal::DeviceInfo describe(cl_platform_id platform, cl_device_id device) {
  hal::DeviceInfo info;
  info.backend = "opencl";
  info.name = text_of(device, CL_DEVICE_NAME);
  // AMD names the chip ("gfx1100") where others name the board.
  constexpr cl_device_info kBoardNameAmd = 0x4038;
  if (const std::string board = text_of(device, kBoardNameAmd); !board.empty()) info.name = board;
  info.vendor = text_of(device, CL_DEVICE_VENDOR);
  info.driver = text_of(platform, CL_PLATFORM_NAME) + " " + text_of(device, CL_DRIVER_VERSION);
  info.api = text_of(device, CL_DEVICE_VERSION);
  info.host_visible = true;
  info.is_cpu = (number<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;

  const simt::Quirks& quirks = simt::quirks_of(info.name);
  info.timestamps =
      !quirks.zero_timestamps && (number<cl_command_queue_properties>(device, CL_DEVICE_QUEUE_PROPERTIES) &
                                  CL_QUEUE_PROFILING_ENABLE) != 0;

  hal::Limits& limits = info.limits;
  limits.memory_bytes = static_cast<std::int64_t>(number<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE));
  limits.max_allocation_bytes =
      static_cast<std::int64_t>(number<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
  limits.max_local_bytes = static_cast<std::int64_t>(number<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE));
  limits.max_workgroup = static_cast<std::int32_t>(
      std::min<std::size_t>(number<std::size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE), INT_MAX));
  // OpenCL has no such limit; these are what every GPU's hardware supports.
  limits.max_groups = {INT_MAX, 65535, 65535};
  if (quirks.max_workgroup > 0) limits.max_workgroup = std::min(limits.max_workgroup, quirks.max_workgroup);
  limits.max_parameter_bytes =
      static_cast<std::int64_t>(number<std::size_t>(device, CL_DEVICE_MAX_PARAMETER_SIZE));
  limits.offset_alignment =
      std::max<std::int64_t>(128, number<cl_uint>(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8);

  const std::string extensions = text_of(device, CL_DEVICE_EXTENSIONS);
  limits.subgroup = 1;
  if (!info.is_cpu)
    limits.subgroup = contains(info.vendor, "NVIDIA") ? 32 : contains(info.vendor, "Intel") ? 16 : 64;
  for (const char* word : {"cl_khr_fp16", "cl_khr_fp64", "cl_khr_subgroups", "cl_khr_int64_base_atomics",
                           "cl_khr_integer_dot_product", "cl_khr_il_program", "cl_khr_command_buffer",
                           "cl_intel_required_subgroup_size"})
    if (has_word(extensions, word)) info.features.emplace_back(word);
  info.features.emplace_back("f16-storage");  // vload_half and vstore_half are core functions
  if (number<cl_bool>(device, CL_DEVICE_HOST_UNIFIED_MEMORY)) info.features.emplace_back("unified-memory");
  info.features.push_back("subgroup=" + std::to_string(limits.subgroup));
  if (contains(info.vendor, "NVIDIA") && has_word(extensions, "cl_nv_device_attribute_query"))
    fill_nvidia(device, info);
  // Of other vendors' GPUs the function may be many instructions.
  if (!info.is_cpu && contains(info.vendor, "Intel") && has_word(extensions, "cl_khr_integer_dot_product"))
    info.features.emplace_back("i8-dot");
  if (has_word(extensions, "cl_intel_subgroup_matrix_multiply_accumulate") &&
      has_word(extensions, "cl_intel_required_subgroup_size"))
    fill_intel(device, info);
  const std::int64_t free = has_word(extensions, "cl_amd_device_attribute_query") ? free_bytes(device) : 0;
  const std::int64_t all = limits.memory_bytes;
  if (free > 0 && free < all) {
    limits.memory_bytes = free;
    limits.max_allocation_bytes = std::min(limits.max_allocation_bytes, free);
  }
  info.profile = profile_of(device, info);
  if (limits.memory_bytes < all) info.profile.sources["memory_bytes"] = free_text(all);
  return info;
}

// The reason why this backend cannot use the device, or "".
std::string refusal(cl_device_id device) {
  if (!number<cl_bool>(device, CL_DEVICE_AVAILABLE)) return "the driver says it is not available";
  if (!number<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE)) return "the driver has no compiler";
  if (!number<cl_bool>(device, CL_DEVICE_ENDIAN_LITTLE)) return "it is big-endian";
  if (contains(text_of(device, CL_DEVICE_VERSION), "OpenCL 1.0") ||
      contains(text_of(device, CL_DEVICE_VERSION), "OpenCL 1.1"))
    return "OpenCL 1.2 is needed and it has " + text_of(device, CL_DEVICE_VERSION);
  return {};
}

}  // namespace

std::vector<PhysicalDevice> enumerate_devices(std::string& why_none) {
  why_none.clear();
  cl_uint count = 0;
  // The ICD loader answers CL_PLATFORM_NOT_FOUND_KHR (-1001) when no driver is registered.
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS || count == 0) {
    why_none =
        "no OpenCL driver is installed: install pocl-opencl-icd (runs on the CPU) or the GPU vendor's OpenCL "
        "ICD, "
        "which adds a file to /etc/OpenCL/vendors";
    return {};
  }
  std::vector<cl_platform_id> platforms(count);
  clGetPlatformIDs(count, platforms.data(), nullptr);
  std::vector<PhysicalDevice> found;
  std::string refused;
  for (cl_platform_id platform : platforms) {
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
    std::vector<cl_device_id> devices(count);
    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr);
    for (cl_device_id device : devices) {
      const std::string reason = refusal(device);
      if (reason.empty())
        found.push_back({platform, device, describe(platform, device)});
      else
        refused += "; " + text_of(device, CL_DEVICE_NAME) + ": " + reason;
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const PhysicalDevice& a, const PhysicalDevice& b) {
    return a.info.is_cpu < b.info.is_cpu;
  });
  for (std::size_t i = 0; i < found.size(); ++i) found[i].info.id = "opencl:" + std::to_string(i);
  if (found.empty()) why_none = "the OpenCL drivers installed offer no usable device" + refused;
  return found;
}

}  // namespace meshloom::backends::opencl
