#include "backends/vulkan/inspect/compiling_device.h"

#include <utility>

#include "backends/vulkan/inspect/inspect_shader.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

const PhysicalDevice& checked(const PhysicalDevice& found, Use use) {
  if (use == Use::inspect && !found.features.executable_info)
    throw hal::Error(
        found.info.id + " (" + found.info.name + ")",
        "inspecting kernels needs a driver with VK_KHR_pipeline_executable_properties, such as those of AMD, "
        "Intel and NVIDIA GPUs; without a GPU, RADV_FORCE_FAMILY=navi31 makes Mesa's RADV stand for one",
        found.info.driver + " without it");
  return found;
}

}  // namespace

CompilingDevice::CompilingDevice(std::shared_ptr<Instance> instance, const PhysicalDevice& found, Use use)
    : CompileOnlyDevice(found.info),
      context_(std::make_shared<Context>(std::move(instance), checked(found, use), use)) {}

std::shared_ptr<hal::Executable> CompilingDevice::load(const hal::ExecutableSpec& spec) {
  std::shared_ptr<VkExecutable>& slot = executables_[spec.key()];
  if (!slot) slot = std::make_shared<VkExecutable>(context_, info_, cache_, spec);
  return slot;
}

hal::InspectedShader CompilingDevice::inspect_shader(const hal::ShaderModule& shader) {
  return vulkan::inspect_shader(*context_, info_, shader);
}

}  // namespace meshloom::backends::vulkan
