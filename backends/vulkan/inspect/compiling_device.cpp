#include "backends/vulkan/inspect/compiling_device.h"

#include <utility>

#include "backends/vulkan/inspect/foreign_shader.h"
#include "hal/error.h"
#include "hal/null_command_list.h"

namespace meshloom::backends::vulkan {
namespace {

class NoMemory final : public hal::Buffer {
 public:
  NoMemory(std::int64_t bytes, std::string label) : Buffer(bytes, std::move(label)) {}
};

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
    : Device(found.info), context_(std::make_shared<Context>(std::move(instance), checked(found, use), use)) {
  info_.computes = false;
}

void CompilingDevice::refuse(const std::string& what) const {
  throw hal::Error(info_.id + " (" + info_.name + ")",
                   "this device compiles kernels and never runs them: choose another --device to run", what);
}

std::shared_ptr<hal::Executable> CompilingDevice::load(const hal::ExecutableSpec& spec) {
  std::shared_ptr<VkExecutable>& slot = executables_[spec.key()];
  if (!slot) slot = std::make_shared<VkExecutable>(context_, info_, cache_, spec);
  return slot;
}

hal::InspectedShader CompilingDevice::inspect_shader(const hal::ForeignShader& shader) {
  return vulkan::inspect_shader(*context_, info_, shader);
}

std::unique_ptr<hal::CommandList> CompilingDevice::record(std::string) {
  return std::make_unique<hal::NullCommandList>();
}

void CompilingDevice::submit(hal::CommandList&) { refuse("commands that were submitted"); }

void CompilingDevice::write(hal::Buffer& buffer, std::int64_t, std::span<const std::byte>) {
  refuse("a write to '" + buffer.label() + "'");
}

void CompilingDevice::read(const hal::Buffer& buffer, std::int64_t, std::span<std::byte>) {
  refuse("a read of '" + buffer.label() + "'");
}

std::unique_ptr<hal::Buffer> CompilingDevice::do_allocate(std::int64_t bytes, const std::string& label) {
  return std::make_unique<NoMemory>(bytes, label);
}

}  // namespace meshloom::backends::vulkan
