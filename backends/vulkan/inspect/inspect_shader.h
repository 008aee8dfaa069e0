// Shaders of other projects, inspected as our kernels are, so that both are read alike.
#pragma once

#include "backends/vulkan/device/context.h"
#include "hal/device.h"
#include "hal/inspection.h"

namespace meshloom::backends::vulkan {

// hal::ShaderInspector's, in a context that inspects.
hal::InspectedShader inspect_shader(const Context& context, const hal::DeviceInfo& info,
                                    const hal::ShaderModule& shader);

}  // namespace meshloom::backends::vulkan
