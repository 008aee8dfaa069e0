// Chooses one variant per call: calls `fit` once per distinct call and stores the answer in the call.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/compose/compose.h"

namespace meshloom::trainer {

// In this order: the variant of the last rule that matches; the best variant made for the profile's kind; the
// best variant for any kind; the reference. One selector serves all programs of a plan, so that equal calls
// get equal variants.
class VariantSelector {
 public:
  // Throws Error on a malformed rule, or one that names a variant which no op it matches has on this backend. Rules that ask
  // for measurements get those of `tuning`; nullptr = those in the cache folder.
  VariantSelector(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                  const std::vector<KernelRule>& rules, std::shared_ptr<const Tuning> tuning = nullptr);
  ~VariantSelector();

  // Throws Error when a rule's variant does not fit, with the reason. With `row_exact` only variants that promise
  // Variant::row_exact are chosen; throws NotRowExact where an op has none that fits, or a rule names another.
  kernels::Program select(kernels::Program program, bool row_exact = false);

  // The distinct refusals so far, in order; rules that matched no call; rules that named the variant that is
  // chosen anyway.
  const std::vector<Refusal>& refusals() const;
  std::vector<std::string> unmatched_rules() const;
  std::vector<std::string> no_op_rules() const;
  // The effect of each rule with the variant "tuned", one line each, and what was wrong with the
  // measurements.
  std::vector<std::string> tuned_rules() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The choice for one call that stands alone, without rules. Throws Error on a call that the contract refuses.
kernels::Choice select_one(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                           const std::string& op, const std::vector<kernels::TensorType>& inputs,
                           const kernels::Attrs& attrs);

}  // namespace meshloom::trainer
