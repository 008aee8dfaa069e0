#include "backends/opencl/inspect/ptxas_report.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

namespace meshloom::backends::opencl {
namespace {

// The number before " WORDS", such as the 40 of "Used 40 registers".
std::optional<std::int64_t> number_before(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(" " + std::string(words));
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t begin = at;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1]))) --begin;
  if (begin == at || at - begin > 12) return std::nullopt;
  return std::stoll(std::string(text.substr(begin, at - begin)));
}

}  // namespace

void read_ptxas_report(std::string_view text, hal::Inspection& inspection) {
  const auto take = [&](std::string_view words) {
    const auto value = number_before(text, words);
    if (value)
      inspection.statistics.push_back({std::string(words), "of ptxas -v", static_cast<double>(*value)});
    return value;
  };
  inspection.registers = take("registers");
  inspection.scratch_bytes = take("bytes stack frame");
  if (const auto stores = take("bytes spill stores")) inspection.spilled = (*stores + 3) / 4;
  take("bytes spill loads");
  take("barriers");
  const auto local = take("bytes smem");
  // It says nothing of a kernel without.
  if (inspection.registers) inspection.local_bytes = local.value_or(0);
}

double warps_of(const Multiprocessor& sm, std::int64_t registers, std::int64_t local_bytes,
                std::int64_t workgroup) {
  constexpr std::int64_t kWarp = 32, kRegisters = 65536, kGranule = 256, kQuarters = 4, kOwnLocal = 1024;
  const std::int64_t of_warp =
      (std::max<std::int64_t>(registers, 1) * kWarp + kGranule - 1) / kGranule * kGranule;
  const std::int64_t of_group = std::max<std::int64_t>((workgroup + kWarp - 1) / kWarp, 1);
  const std::int64_t by_registers = kRegisters / kQuarters / of_warp * kQuarters;
  std::int64_t groups = std::min({sm.groups, by_registers / of_group, sm.warps / of_group});
  if (local_bytes > 0) groups = std::min(groups, sm.local / (local_bytes + kOwnLocal));
  return static_cast<double>(std::max<std::int64_t>(groups, 1) * of_group) / kQuarters;
}

}  // namespace meshloom::backends::opencl
