// Chooses one variant per call: asks `fit` once per distinct call and stores the answer on it.
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

// In this order: the variant of the last rule that matches; the best that is shaped for the profile's kind;
// the best for any kind; the reference. Serves all programs of one plan, so that equal calls get equal
// variants.
class VariantSelector {
 public:
  // Throws Error on a malformed rule, or one that names a variant which no op it matches has on this backend.
  VariantSelector(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                  const std::vector<KernelRule>& rules);
  ~VariantSelector();

  // Throws Error when a rule's variant does not fit, with the reason.
  kernels::Program select(kernels::Program program);

  // Distinct refusals so far, in order; rules that matched no call; rules that named what was chosen anyway.
  const std::vector<Refusal>& refusals() const;
  std::vector<std::string> unmatched_rules() const;
  std::vector<std::string> no_op_rules() const;
  // What the rules that say "tuned" came to, one line each, and what was wrong with the measurements.
  std::vector<std::string> tuned_rules() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace meshloom::trainer
