// What a compute shader in SPIR-V says of its interface (the SPIR-V specification, sections 2.3 and 3).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace meshloom::backends::vulkan {

enum class BufferKind : std::uint8_t { storage, uniform };

struct SpirvInterface {
  std::string entry;                       // of the first compute shader in it
  std::array<std::uint32_t, 3> workgroup;  // invocations
  bool uses_cooperative_matrices = false;
  // Its buffers by set and binding.
  std::map<std::uint32_t, std::map<std::uint32_t, BufferKind>> sets;
};

// `constants` are those of the specialization, by id. Throws Error with `where` where the words are no module of
// SPIR-V 1.3 or newer, where an instruction ends beyond them, and where there is no compute shader, no size of a workgroup, or a
// binding that is no buffer.
SpirvInterface read_spirv_interface(std::span<const std::uint32_t> words,
                                    const std::map<std::uint32_t, std::uint32_t>& constants,
                                    const std::string& where);

}  // namespace meshloom::backends::vulkan
