#include "backends/vulkan/inspect/inspect_shader.h"

#include <algorithm>
#include <string>
#include <vector>

#include "backends/vulkan/device/pipeline.h"
#include "backends/vulkan/device/status.h"
#include "backends/vulkan/inspect/spirv_interface.h"
#include "backends/vulkan/inspect/statistics.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

// Frees what was created, however far that got.
struct Created {
  VkDevice device;
  std::vector<VkDescriptorSetLayout> sets;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkShaderModule module = VK_NULL_HANDLE;
  VkPipeline pipeline = VK_NULL_HANDLE;
  ~Created() {
    vkDestroyPipeline(device, pipeline, nullptr);
    vkDestroyShaderModule(device, module, nullptr);
    vkDestroyPipelineLayout(device, layout, nullptr);
    for (VkDescriptorSetLayout set : sets) vkDestroyDescriptorSetLayout(device, set, nullptr);
  }
};

void create_layout(Created& created, const SpirvInterface& module, std::uint32_t push_constant_bytes,
                   const std::string& where) {
  const std::uint32_t count = module.sets.empty() ? 0 : module.sets.rbegin()->first + 1;
  for (std::uint32_t set = 0; set < count; ++set) {
    std::vector<VkDescriptorSetLayoutBinding> bindings;
    if (const auto found = module.sets.find(set); found != module.sets.end())
      for (const auto& [binding, kind] : found->second)
        bindings.push_back({binding,
                            kind == BufferKind::uniform ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER
                                                        : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                            1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
    VkDescriptorSetLayoutCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
    info.bindingCount = static_cast<std::uint32_t>(bindings.size());
    info.pBindings = bindings.data();
    VkDescriptorSetLayout layout = VK_NULL_HANDLE;
    check(vkCreateDescriptorSetLayout(created.device, &info, nullptr, &layout), where,
          "vkCreateDescriptorSetLayout");
    created.sets.push_back(layout);
  }
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, push_constant_bytes};
  VkPipelineLayoutCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  info.setLayoutCount = count;
  info.pSetLayouts = created.sets.data();
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  check(vkCreatePipelineLayout(created.device, &info, nullptr, &created.layout), where,
        "vkCreatePipelineLayout");
}

void create_pipeline(Created& created, const hal::ShaderModule& shader, const std::string& entry,
                     const std::string& where) {
  VkShaderModuleCreateInfo module{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module.codeSize = shader.spirv.size() * 4;
  module.pCode = shader.spirv.data();
  check(vkCreateShaderModule(created.device, &module, nullptr, &created.module), where,
        "vkCreateShaderModule");
  std::vector<VkSpecializationMapEntry> entries;
  std::vector<std::uint32_t> values;
  for (const auto& [id, value] : shader.constants) {
    entries.push_back({id, static_cast<std::uint32_t>(values.size() * 4), 4});
    values.push_back(value);
  }
  const VkSpecializationInfo constants{static_cast<std::uint32_t>(entries.size()), entries.data(),
                                       values.size() * 4, values.data()};
  VkComputePipelineCreateInfo create{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  create.flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                 VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  create.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  create.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  create.stage.module = created.module;
  create.stage.pName = entry.c_str();
  create.stage.pSpecializationInfo = &constants;
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, nullptr, shader.subgroup};
  if (shader.subgroup > 0) {
    create.stage.pNext = &subgroup;
    create.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  create.layout = created.layout;
  check(vkCreateComputePipelines(created.device, VK_NULL_HANDLE, 1, &create, nullptr, &created.pipeline),
        where, "vkCreateComputePipelines");
}

}  // namespace

hal::InspectedShader inspect_shader(const Context& context, const hal::DeviceInfo& info,
                                    const hal::ShaderModule& shader) {
  const std::string where = info.id + ", shader '" + shader.name + "'";
  require_subgroup(info, shader.subgroup, where);
  const SpirvInterface module = read_spirv_interface(shader.spirv, shader.constants, where);
  // Drivers do not refuse what they do not have: some end the process.
  if (module.uses_cooperative_matrices &&
      std::find(info.features.begin(), info.features.end(), "cooperative-matrix") == info.features.end())
    throw hal::Error(where, "a shader with cooperative matrices needs a device that has them", info.name);
  Created created{context.device()};
  create_layout(created, module, sizeof(PushConstants), where);
  create_pipeline(created, shader, module.entry, where);
  hal::InspectedShader inspected;
  inspected.workgroup = module.workgroup;
  inspected.found = inspect_pipeline(context.device(), created.pipeline, module.workgroup, info.name, where);
  return inspected;
}

}  // namespace meshloom::backends::vulkan
