#include "trainer/cli/self_test.h"

#include <algorithm>

#include "hal/error.h"
#include "kernels/core/self_test_run.h"

namespace meshloom::trainer {
namespace {

// The first variant that fits; variants for the profile's kind come before those for any kind.
const kernels::Variant* pick(const kernels::Catalog& catalog, const kernels::CallView& call,
                             const hal::DeviceInfo& device, kernels::Choice& choice) {
  std::vector<const kernels::Variant*> variants = catalog.variants(call.op, device.backend);
  std::stable_partition(variants.begin(), variants.end(), [&](const kernels::Variant* variant) {
    return !variant->kinds.empty() && variant->serves(device.profile.kind);
  });
  for (const kernels::Variant* variant : variants) {
    if (!variant->serves(device.profile.kind)) continue;
    kernels::Fit fit = variant->answer(call, device);
    if (!fit.ok) continue;
    choice = {variant, std::move(fit.params), fit.workspace_bytes, 0};
    return variant;
  }
  return nullptr;
}

SelfTestResult test_op(hal::Device& device, const kernels::Catalog& catalog, const std::string& op) {
  SelfTestResult result{op, "-", false, 0, {}};
  const kernels::Contract& contract = catalog.contract(op);
  const std::vector<kernels::Case> cases = contract.cases();
  const auto test = std::find_if(cases.begin(), cases.end(), [](const kernels::Case& c) { return !c.slow; });
  if (test == cases.end()) throw Error(op, "must have a case to test with", "none");
  const std::vector<kernels::TensorType> outputs = contract.infer(test->inputs, test->attrs);
  const kernels::CallView call{contract.name, test->inputs, outputs, test->attrs};
  kernels::Choice choice;
  const kernels::Variant* variant = pick(catalog, call, device.info(), choice);
  if (!variant) throw Error(op, "must have a variant that fits here", "none");
  result.variant = variant->name;

  const kernels::CallCheck check = kernels::check_call(device, contract, call, choice, 1);
  result.ok = check.ok;
  result.worst = check.worst;
  result.problem = check.problem;
  return result;
}

}  // namespace

std::vector<SelfTestResult> self_test(hal::Device& device, const kernels::Catalog& catalog) {
  std::vector<SelfTestResult> results;
  for (const char* op : {"matmul", "flash_attention", "rms_norm", "elementwise"}) {
    try {
      results.push_back(test_op(device, catalog, op));
    } catch (const std::exception& error) {
      results.push_back({op, "-", false, 0, error.what()});
    }
  }
  return results;
}

}  // namespace meshloom::trainer
