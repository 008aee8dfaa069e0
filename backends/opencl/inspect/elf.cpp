#include "backends/opencl/inspect/elf.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "hal/error.h"

namespace meshloom::backends::opencl {
namespace {

// Source: System V Application Binary Interface, ELF-64 header and section header.
constexpr std::size_t kHeaderBytes = 64, kSectionBytes = 64;
constexpr std::uint32_t kNoBits = 8;

[[noreturn]] void refuse(const std::string& found) {
  throw hal::Error("compiled kernel", "must be a whole 64-bit ELF file", found);
}

template <typename T>
T at(std::string_view file, std::uint64_t offset) {
  T value{};
  if (offset > file.size() || sizeof value > file.size() - offset) refuse("an end within a header");
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::string_view part(std::string_view file, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > file.size() || bytes > file.size() - offset) refuse("a section beyond the end");
  return file.substr(offset, bytes);
}

}  // namespace

std::vector<ElfSection> elf_sections(std::string_view file) {
  if (file.size() < kHeaderBytes || file.substr(0, 6) != std::string_view("\x7f"
                                                                          "ELF\x02\x01",
                                                                          6))
    refuse(std::to_string(file.size()) + " bytes of another kind");
  const auto table = at<std::uint64_t>(file, 40);
  const auto entry = at<std::uint16_t>(file, 58), count = at<std::uint16_t>(file, 60),
             names_index = at<std::uint16_t>(file, 62);
  if (entry < kSectionBytes || names_index >= count) refuse("a table of sections without names");
  part(file, table, std::uint64_t{entry} * count);
  const auto section = [&](std::uint64_t index) {
    const std::uint64_t header = table + index * entry;
    if (at<std::uint32_t>(file, header + 4) == kNoBits) return std::string_view{};
    return part(file, at<std::uint64_t>(file, header + 24), at<std::uint64_t>(file, header + 32));
  };
  const std::string_view names = section(names_index);
  std::vector<ElfSection> sections;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto name = at<std::uint32_t>(file, table + i * entry);
    if (name > names.size()) refuse("a name beyond the end");
    const std::string_view behind = names.substr(name);
    sections.push_back({behind.substr(0, behind.find('\0')), section(i)});
  }
  return sections;
}

}  // namespace meshloom::backends::opencl
