#include "backends/vulkan/device/pipeline.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/simt/dialect/loader.h"
#include "backends/vulkan/device/shader.h"
#include "backends/vulkan/device/status.h"
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

VkExecutable::VkExecutable(std::shared_ptr<Context> context, const hal::DeviceInfo& info,
                           const hal::DiskCache& cache, const hal::ExecutableSpec& spec)
    : Executable(spec),
      context_(std::move(context)),
      where_(info.id + ", kernel '" + spec.kernel + "'"),
      slots_(context_->slots(spec.bindings)),
      cache_(cache) {
  const std::size_t size = std::size_t{spec.workgroup[0]} * spec.workgroup[1] * spec.workgroup[2];
  if (size > static_cast<std::size_t>(info.limits.max_workgroup))
    throw hal::Error(
        where_,
        "runs in workgroups of at most " + std::to_string(info.limits.max_workgroup) + " on " + info.name,
        std::to_string(size));
  const auto min = static_cast<std::uint32_t>(info.limits.min_subgroup),
             max = static_cast<std::uint32_t>(info.limits.max_subgroup);
  if (spec.subgroup > 0 && (spec.subgroup < min || spec.subgroup > max))
    throw hal::Error(where_,
                     "subgroups have " + std::to_string(min) + " to " + std::to_string(max) +
                         " invocations on " + info.name,
                     std::to_string(spec.subgroup));
  (void)pipeline(false);
}

VkPipeline VkExecutable::pipeline(bool by_address) const {
  VkPipeline& slot = pipelines_[by_address ? 1 : 0];
  if (!slot) slot = compile(by_address);
  return slot;
}

VkPipeline VkExecutable::compile(bool by_address) const {
  const VkDevice device = context_->device();
  const simt::Language language = by_address                       ? simt::Language::glsl_device_address
                                  : context_->uses_texel_buffers() ? simt::Language::glsl_texels
                                                                   : simt::Language::glsl;
  const std::string source = simt::source_of(spec(), language, embedded::vulkan_kernels());
  const std::vector<std::uint32_t> words =
      compile_glsl(source, where_ + " as '" + spec().key() + "'", cache_);

  VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = words.size() * 4;
  module_info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  check(vkCreateShaderModule(device, &module_info, nullptr, &module), where_, "vkCreateShaderModule");

  // One small cache per pipeline: files never need merging between processes.
  const std::string key = "pipeline\n" + context_->cache_key() + "\n" + source;
  const std::optional<Bytes> known = cache_.load("vkpipe", key);
  VkPipelineCacheCreateInfo cache_info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  if (known) {
    cache_info.initialDataSize = known->size();
    cache_info.pInitialData = known->data();
  }
  VkPipelineCache pipelines = VK_NULL_HANDLE;
  if (vkCreatePipelineCache(device, &cache_info, nullptr, &pipelines) != VK_SUCCESS)
    pipelines = VK_NULL_HANDLE;

  VkComputePipelineCreateInfo create{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
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
