// What a Vulkan driver says about a pipeline, by VK_KHR_pipeline_executable_properties.
#pragma once

#include <vulkan/vulkan.h>

#include <array>
#include <cstdint>
#include <string>

#include "hal/inspection.h"

namespace meshloom::backends::vulkan {

// Of a compute pipeline that was created with both flags VK_PIPELINE_CREATE_CAPTURE_*, for workgroups of so many invocations.
// `device_name` is the driver's name of the device, which says whose listing it is. Throws Error with `where` when the driver
// does not answer.
hal::Inspection inspect_pipeline(VkDevice device, VkPipeline pipeline,
                                 const std::array<std::uint32_t, 3>& workgroup,
                                 const std::string& device_name, const std::string& where);

// Fills the fields of `inspection` that its statistics and its subgroup give.
void read_statistics(hal::Inspection& inspection);

}  // namespace meshloom::backends::vulkan
