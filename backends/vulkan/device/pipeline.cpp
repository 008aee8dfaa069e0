#include "backends/vulkan/device/pipeline.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/simt/dialect/loader.h"
#include "backends/vulkan/device/shader.h"
#include "backends/vulkan/device/status.h"
#include "backends/vulkan/inspect/statistics.h"
#include "embedded_vulkan_kernels.h"

namespace meshloom::backends::vulkan {
namespace {

using Bytes = std::vector<std::byte>;

Bytes data_of(VkDevice device, VkPipelineCache cache) {
  std::size_t size = 0;
  if (vkGetPipelineCacheData(device, cache, &size, nullptr) != VK_SUCCESS) return {};
  Bytes data(size);
  if (vkGetPipelineCacheData(device, cache, &size, data.data()) != VK_SUCCESS) return {};
  data.resize(size);
  return data;
}

}  // namespace

void require_subgroup(const hal::DeviceInfo& info, std::uint32_t subgroup, const std::string& where) {
  const auto min = static_cast<std::uint32_t>(info.limits.min_subgroup),
             max = static_cast<std::uint32_t>(info.limits.max_subgroup);
  if (subgroup > 0 && (subgroup < min || subgroup > max))
    throw hal::Error(where,
                     "subgroups have " + std::to_string(min) + " to " + std::to_string(max) +
                         " invocations on " + info.name,
                     std::to_string(subgroup));
}

VkExecutable::VkExecutable(std::shared_ptr<Context> context, const hal::DeviceInfo& info,
                           const hal::DiskCache& cache, const hal::ExecutableSpec& spec)
    : Executable(spec),
      context_(std::move(context)),
      where_(info.id + ", kernel '" + spec.kernel + "'"),
      device_name_(info.name),
      slots_(context_->slots(spec.bindings)),
      cache_(cache) {
  const std::size_t size = std::size_t{spec.workgroup[0]} * spec.workgroup[1] * spec.workgroup[2];
  if (size > static_cast<std::size_t>(info.limits.max_workgroup))
    throw hal::Error(
        where_,
        "runs in workgroups of at most " + std::to_string(info.limits.max_workgroup) + " on " + info.name,
        std::to_string(size));
  require_subgroup(info, spec.subgroup, where_);
  (void)pipeline(false);
}

VkPipeline VkExecutable::pipeline(bool by_address) const {
  VkPipeline& slot = pipelines_[by_address ? 1 : 0];
  if (!slot) slot = compile(by_address);
  return slot;
}

std::string VkExecutable::source(bool by_address) const {
  const simt::Language language = by_address                       ? simt::Language::glsl_device_address
                                  : context_->uses_texel_buffers() ? simt::Language::glsl_texels
                                                                   : simt::Language::glsl;
  return simt::source_of(spec(), language, embedded::vulkan_kernels());
}

std::vector<std::uint32_t> VkExecutable::spirv(const std::string& source) const {
  return compile_glsl(source, where_ + " as '" + spec().key() + "'", cache_);
}

bool VkExecutable::needs_addresses(std::span<const hal::Binding> bindings) const {
  for (std::size_t i = 0; i < bindings.size(); ++i)
    if (bindings[i].bytes > context_->max_descriptor_bytes(slots_.type(static_cast<std::uint32_t>(i))))
      return true;
  return false;
}

hal::Inspection VkExecutable::inspect(std::span<const hal::Binding> bindings) const {
  if (context_->use() != Use::inspect)
    throw hal::Error(where_, "kernels are inspected on a device that was opened for it");
  const bool by_address = needs_addresses(bindings);
  hal::Inspection found =
      inspect_pipeline(context_->device(), pipeline(by_address), spec().workgroup, device_name_, where_);
  const std::string text = source(by_address);
  const std::vector<std::uint32_t> words = spirv(text);
  found.files.push_back({".glsl", text});
  found.files.push_back({".spv", {reinterpret_cast<const char*>(words.data()), words.size() * 4}});
  return found;
}

VkPipeline VkExecutable::compile(bool by_address) const {
  const VkDevice device = context_->device();
  const bool inspects = context_->use() == Use::inspect;
  const std::string source = this->source(by_address);
  const std::vector<std::uint32_t> words = spirv(source);

  VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = words.size() * 4;
  module_info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  check(vkCreateShaderModule(device, &module_info, nullptr, &module), where_, "vkCreateShaderModule");

  // One small cache per pipeline: files never need merging between processes.
  const std::string key = "pipeline\n" + context_->cache_key() + "\n" + source;
  // What is loaded from a cache has no statistics.
  const std::optional<Bytes> known = inspects ? std::nullopt : cache_.load("vkpipe", key);
  VkPipelineCacheCreateInfo cache_info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  if (known) {
    cache_info.initialDataSize = known->size();
    cache_info.pInitialData = known->data();
  }
  VkPipelineCache pipelines = VK_NULL_HANDLE;
  if (inspects || vkCreatePipelineCache(device, &cache_info, nullptr, &pipelines) != VK_SUCCESS)
    pipelines = VK_NULL_HANDLE;

  VkComputePipelineCreateInfo create{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  if (inspects)
    create.flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                   VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  create.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  create.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  create.stage.module = module;
  create.stage.pName = "main";
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, nullptr, spec().subgroup};
  if (spec().subgroup > 0) {
    create.stage.pNext = &subgroup;
    create.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  create.layout = layout(by_address).pipeline;
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult status = vkCreateComputePipelines(device, pipelines, 1, &create, nullptr, &pipeline);
  if (pipelines) {
    const Bytes now = data_of(device, pipelines);
    if (status == VK_SUCCESS && !now.empty() && (!known || *known != now)) cache_.store("vkpipe", key, now);
    vkDestroyPipelineCache(device, pipelines, nullptr);
  }
  vkDestroyShaderModule(device, module, nullptr);
  check(status, where_, "vkCreateComputePipelines");
  return pipeline;
}

VkExecutable::~VkExecutable() {
  if (!context_->drain(context_->submitted())) return;
  for (VkPipeline pipeline : pipelines_) vkDestroyPipeline(context_->device(), pipeline, nullptr);
}

}  // namespace meshloom::backends::vulkan
