#include "trainer/execute/candidates.h"

#include <fmt/format.h>

#include <utility>

namespace meshloom::trainer {
namespace {

std::string name_of(const kernels::Variant& variant, const kernels::Fit& own, const kernels::Fit& other) {
  std::string name = variant.name;
  for (const auto& [param, value] : other.params)
    if (const auto found = own.params.find(param); found == own.params.end() || found->second != value)
      name += fmt::format(" {}={}", param, value);
  for (const auto& [param, value] : own.params)
    if (!other.params.count(param)) name += fmt::format(" without {}", param);
  return name;
}

}  // namespace

std::vector<Candidate> candidates(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                                  const kernels::CallView& call) {
  std::vector<Candidate> all;
  for (const kernels::Variant* variant : catalog.variants(call.op, device.backend)) {
    if (variant->name == "reference") continue;
    kernels::Fit own = variant->answer(call, device);
    if (!own.ok) continue;
    std::vector<kernels::Fit> others;
    if (variant->alternatives && !own.params.count(kernels::kF32Fallback))
      others = variant->alternatives(call, device);
    const std::size_t first = all.size();
    all.push_back({variant, std::move(own), variant->name, true});
    for (kernels::Fit& other : others) {
      if (other.params == all[first].fit.params) continue;
      std::string name = name_of(*variant, all[first].fit, other);
      all.push_back({variant, std::move(other), std::move(name), false});
    }
  }
  return all;
}

}  // namespace meshloom::trainer
