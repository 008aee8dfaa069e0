#include "backends/opencl/inspect/ze_info.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/simt/inspect/listing.h"

namespace meshloom::backends::opencl {
namespace {

using simt::isa::stripped;

struct MemoryBuffer {
  std::int64_t size = 0;
  bool of_invocation = false;  // else of a hardware thread
};

}  // namespace

void read_ze_info(std::string_view text, hal::Inspection& inspection) {
  std::map<std::string, std::int64_t, std::less<>> values;
  std::vector<MemoryBuffer> buffers;
  std::optional<std::size_t> within;  // the indentation of the list of buffers
  // IGC adds an empty kernel of this name to programs with constants in memory.
  constexpr std::string_view kEmptyKernel = "Intel_Symbol_Table_Void_Program";
  bool of_empty = false;
  while (!text.empty()) {
    const std::string_view line = simt::isa::next_line(text);
    std::string_view inside = stripped(line);
    if (inside.empty()) continue;
    const std::size_t indentation = line.find_first_not_of(" \t");
    if (within && indentation <= *within && !inside.starts_with("- ")) within.reset();
    if (inside == "per_thread_memory_buffers:") {
      within = indentation;
      continue;
    }
    if (inside.starts_with("- ")) {
      inside = stripped(inside.substr(2));
      if (within) buffers.push_back({});
    }
    const std::size_t colon = inside.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = inside.substr(0, colon);
    const std::string value(stripped(inside.substr(colon + 1)));
    const auto number = simt::isa::number(value);
    if (key == "name") of_empty = value == kEmptyKernel;
    if (of_empty) continue;
    if (within && !buffers.empty()) {
      if (key == "size") buffers.back().size = number.value_or(0);
      if (key == "is_simt_thread") buffers.back().of_invocation = value == "true";
    } else if (number) {
      values.emplace(key, *number);  // there is one kernel
    }
  }
  const auto find = [&](const char* key) -> std::optional<std::int64_t> {
    const auto found = values.find(std::string_view(key));
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
  const auto simd = find("simd_size"), registers = find("grf_count");
  if (!simd || !registers) return;
  inspection.subgroup = static_cast<std::int32_t>(std::clamp<std::int64_t>(*simd, 1, 1024));
  inspection.registers = registers;
  inspection.local_bytes = find("slm_size").value_or(0);
  std::int64_t scratch = 0;
  for (const MemoryBuffer& buffer : buffers)
    scratch += buffer.of_invocation ? buffer.size : buffer.size / inspection.subgroup;
  inspection.scratch_bytes = scratch;
  for (const char* key :
       {"simd_size", "grf_count", "slm_size", "barrier_count", "spill_size", "private_size"})
    if (const auto value = find(key))
      inspection.statistics.push_back({key, "of .ze_info", static_cast<double>(*value)});
}

}  // namespace meshloom::backends::opencl
