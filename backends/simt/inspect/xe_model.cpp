#include "backends/simt/inspect/xe_model.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace meshloom::backends::simt::isa {
namespace {

// Source: Intel oneAPI GPU Optimization Guide and GPU Occupancy Calculator, Xe-HPG and Xe2.
constexpr std::array kXe{Xe{"dg2", 8, 32, 16, 131072}, Xe{"bmg", 16, 64, 8, 131072}};
constexpr std::int64_t kThreads = 8;  // of a vector engine, with 128 registers each

}  // namespace

const Xe* xe_of(std::string_view family) {
  const auto* found =
      std::find_if(kXe.begin(), kXe.end(), [&](const Xe& one) { return one.family == family; });
  return found == kXe.end() ? nullptr : found;
}

double xe_waves_of(const Xe& xe, std::int64_t registers, std::int64_t local_bytes, std::int64_t workgroup,
                   std::int64_t subgroup) {
  const std::int64_t of_group = (workgroup + subgroup - 1) / subgroup;
  const std::int64_t threads = registers > 128 ? kThreads / 2 : kThreads;
  std::int64_t groups = threads * xe.engines / std::max<std::int64_t>(of_group, 1);
  if (local_bytes > 0) groups = std::min(groups, xe.local / local_bytes);
  groups = std::max<std::int64_t>(groups, 1);
  return std::min(static_cast<double>(threads),
                  static_cast<double>(groups * of_group) / static_cast<double>(xe.engines));
}

double dpas_cycles(std::string_view name) {
  const std::size_t times = name.find('x');
  if (!name.starts_with("dpas") || times == std::string_view::npos) return 0;
  int repeat = 0;
  std::from_chars(name.data() + times + 1, name.data() + name.size(), repeat);
  return 2.0 * std::clamp(repeat, 0, 8);
}

}  // namespace meshloom::backends::simt::isa
