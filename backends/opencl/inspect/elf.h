// The sections of a 64-bit little-endian ELF file, which is what compilers of GPUs write.
#pragma once

#include <string_view>
#include <vector>

namespace meshloom::backends::opencl {

struct ElfSection {
  std::string_view name, bytes;  // into the file
};

// Throws Error for a file that is none or is cut off.
std::vector<ElfSection> elf_sections(std::string_view file);

}  // namespace meshloom::backends::opencl
