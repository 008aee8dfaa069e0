// What follows the gradients: their norm, the learner's update, the metrics; and sums over micro-batches.
#pragma once

#include <string>
#include <vector>

#include "kernels/program/builder.h"
#include "layers/models/trace.h"
#include "trainer/learner/learner.h"

namespace meshloom::trainer {

// Sums that a batch gives: loss_sum, token_count, then the model's summaries.
struct BatchSums {
  std::vector<std::string> names;
  std::vector<kernels::Tensor> values;  // (1) each
};

// What the loss is multiplied by before it is differentiated, so that gradients in f16 neither vanish nor overflow;
// nothing where they need no such care (Micikevicius et al., Mixed precision training, 2018). It doubles after many good
// steps and is halved by one whose gradients are not finite.
struct LossScale {
  kernels::Tensor state;  // input "optimizer/loss_scale" (1): 0 before the first step
  kernels::Tensor value;  // (1)
};
// Declares the input and writes what makes the value of it.
LossScale loss_scale(kernels::Builder& builder);

// A state of the model that the step moves from `before` to `after`, or not at all. The result overwrites `homes`.
struct StateUpdate {
  kernels::Tensor before, after;
  std::vector<kernels::Tensor> homes;
};

// Names of "metrics" for these sums, in order; the last is "loss_scale" where there is one.
std::vector<std::string> metric_names(const std::vector<std::string>& sums, bool scaled);

// Inputs "lr" and "optimizer/..."; every parameter of `infos` (those that learn) moves by learner.update, in
// place (donated), and so do `states`; output "metrics". Where apply = 0 all of them keep their bits.
//   norm  = sqrt(sum over gradients of their squares) / token_count
//   scale = min(1, max_norm / norm) / token_count
//   apply = 1 where norm is finite (it is not when there is no token), else 0;  step' = step + apply
// With a loss scale, gradients are that much too large and the token count stands for its product with it.
void write_update(kernels::Builder& builder, const Learner::Config& learner,
                  const std::vector<layers::ParameterInfo>& infos,
                  const std::vector<kernels::Tensor>& parameters,
                  const std::vector<kernels::Tensor>& gradients, const std::vector<StateUpdate>& states,
                  const BatchSums& sums, const LossScale& scale);

// Adds gradients and sums into the persistent "grad/<path>" and "accumulate/<name>"; summaries times the micro-batch's
// tokens.
void write_accumulation(kernels::Builder& builder, const std::vector<layers::ParameterInfo>& infos,
                        const std::vector<kernels::Tensor>& gradients, const BatchSums& sums);

// A whole program "apply": the update from those, then zero into each. Summaries become means over the tokens.
// Micro-batches move the model's `states` one after another, before it is known whether the step is skipped:
// "accumulate/before/<state>" holds what each was before the step, and is what it goes back to. Before the first step the
// host copies the state there.
kernels::Program apply_program(const kernels::Catalog& catalog, const Learner::Config& learner,
                               const std::vector<layers::ParameterInfo>& infos,
                               const std::vector<std::string>& sum_names,
                               const std::vector<kernels::Value>& states, bool scaled);

}  // namespace meshloom::trainer
