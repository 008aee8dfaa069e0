#include "backends/vulkan/pipeline.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/simt/loader.h"
#include "backends/vulkan/shader.h"
#include "backends/vulkan/status.h"
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
                           const simt::DiskCache& cache, const hal::ExecutableSpec& spec)
    : Executable(spec), context_(std::move(context)) {
  const VkDevice device = context_->device();
  const std::string where = info.id + ", kernel '" + spec.kernel + "'";
  const std::size_t size = std::size_t{spec.workgroup[0]} * spec.workgroup[1] * spec.workgroup[2];
  if (size > static_cast<std::size_t>(info.limits.max_workgroup))
    throw hal::Error(
        where,
        "runs in workgroups of at most " + std::to_string(info.limits.max_workgroup) + " on " + info.name,
        std::to_string(size));
  const std::string source = simt::source_of(spec, simt::Language::glsl, embedded::vulkan_kernels());
  const std::vector<std::uint32_t> words = compile_glsl(source, where + " as '" + spec.key() + "'", cache);

  VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = words.size() * 4;
  module_info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  check(vkCreateShaderModule(device, &module_info, nullptr, &module), where, "vkCreateShaderModule");

  // One small cache per pipeline: files never need merging between processes.
  const std::string key = "pipeline\n" + context_->cache_key() + "\n" + source;
  const std::optional<Bytes> known = cache.load("vkpipe", key);
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
  create.layout = context_->layout();
  const VkResult status = vkCreateComputePipelines(device, pipelines, 1, &create, nullptr, &pipeline_);
  if (pipelines) {
    const Bytes now = data_of(device, pipelines);
    if (status == VK_SUCCESS && !now.empty() && (!known || *known != now)) cache.store("vkpipe", key, now);
    vkDestroyPipelineCache(device, pipelines, nullptr);
  }
  vkDestroyShaderModule(device, module, nullptr);
  check(status, where, "vkCreateComputePipelines");
}

VkExecutable::~VkExecutable() {
  context_->wait_quietly(context_->submitted());
  vkDestroyPipeline(context_->device(), pipeline_, nullptr);
}

}  // namespace meshloom::backends::vulkan
