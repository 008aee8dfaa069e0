#include "kernels/core/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "hal/environment.h"
#include "kernel_sources.h"
#include "kernels/core/self_test_run.h"

namespace meshloom::kernels {
namespace {

constexpr std::size_t kMaxCases = 5;  // per dtype: each may be a kernel of its own to compile

std::string key_of(const hal::DeviceInfo& device, const Variant& variant) {
  std::string key = "self_test\n" + device.backend + "\n" + device.name + "\n" + device.driver + "\n" +
                    device.api + "\n" + MESHLOOM_KERNEL_SOURCES + "\n" + variant.key();
  for (const hal::MatrixShape& shape : device.limits.matrix_shapes) key += "\n" + to_string(shape);
  return key;
}

// The cases of one dtype that the variant takes itself, thinned out.
std::vector<Case> cases_for(const Variant& variant, const hal::DeviceInfo& device,
                            std::optional<DType> narrow) {
  std::vector<Case> fitting;
  for (Case& wide : variant.contract->cases()) {
    if (wide.slow) continue;
    std::optional<Case> test = std::move(wide);
    if (narrow) test = to_low_precision(*variant.contract, std::move(*test), *narrow);
    if (!test) continue;
    const std::vector<TensorType> outputs = variant.contract->infer(test->inputs, test->attrs);
    const CallView call{variant.op, test->inputs, outputs, test->attrs};
    if (narrow.has_value() != any_low_precision(call)) continue;
    if (variant.fit(call, device).ok) fitting.push_back(std::move(*test));
  }
  std::vector<Case> chosen;
  const std::size_t count = std::min(kMaxCases, fitting.size());
  for (std::size_t i = 0; i < count; ++i)
    chosen.push_back(std::move(fitting[count > 1 ? i * (fitting.size() - 1) / (count - 1) : 0]));
  return chosen;
}

struct Verdict {
  std::string found;     // "" = as right as the contract asks
  bool measured = true;  // else the device failed, which may be different next time
  int tried = 0;         // cases that the variant took
};

Verdict examine(hal::Device& device, const Variant& variant) {
  Verdict result;
  std::vector<std::optional<DType>> dtypes{std::nullopt};
  if (variant.low_precision) dtypes = {std::nullopt, DType::f16, DType::bf16};
  for (const std::optional<DType>& dtype : dtypes) {
    std::string name;
    try {
      for (const Case& test : cases_for(variant, device.info(), dtype)) {
        name = test.name;
        ++result.tried;
        const std::vector<TensorType> outputs = variant.contract->infer(test.inputs, test.attrs);
        const CallView call{variant.op, test.inputs, outputs, test.attrs};
        Fit fit = variant.fit(call, device.info());
        const CallCheck check = check_call(device, *variant.contract, call,
                                           {&variant, std::move(fit.params), fit.workspace_bytes, 0}, 1);
        if (check.ok) continue;
        result.found = fmt::format("case {} is off by {:.3g} times what is allowed: {}", name, check.worst,
                                   check.problem);
        return result;
      }
    } catch (const std::exception& error) {
      result.found = "case " + name + ": " + error.what();
      result.measured = false;
      return result;
    }
  }
  return result;
}

}  // namespace

std::vector<SelfTestFailure> SelfTest::run(hal::Device& device, const Catalog& catalog) {
  std::vector<SelfTestFailure> failures;
  if (!device.info().computes) return failures;
  const bool experimental = hal::number_from_environment("MESHLOOM_EXPERIMENTAL_KERNELS", 0) != 0;
  for (const Contract* contract : catalog.contracts())
    for (const Variant* variant : catalog.variants(contract->name, device.info().backend)) {
      if (!variant->needs_self_test || (variant->experimental && !experimental)) continue;
      const std::string key = key_of(device.info(), *variant);
      auto known = known_.find(key);
      const bool first = known == known_.end();
      if (first) {
        std::string found;
        if (const auto bytes = cache_.load("self_test", key)) {
          found.assign(reinterpret_cast<const char*>(bytes->data()), bytes->size());
        } else {
          Verdict result = examine(device, *variant);
          if (result.tried == 0) continue;  // does not fit here and says so itself
          found = std::move(result.found);
          if (result.measured) cache_.store("self_test", key, std::as_bytes(std::span(found)));
        }
        known = known_.emplace(key, std::move(found)).first;
      }
      device.add_self_test_result(variant->key(), known->second);
      if (first && !known->second.empty()) failures.push_back({variant->key(), known->second});
    }
  device.reset_peak();
  return failures;
}

}  // namespace meshloom::kernels
