// Writes the part of a train step after the gradients: their norm, the learner's update and the metrics; and
// the sums over micro-batches.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "kernels/program/builder.h"
#include "layers/models/trace.h"
#include "trainer/learner/learner.h"

namespace meshloom::trainer {

// The sums of one batch: loss_sum, token_count, then the model's summaries.
struct BatchSums {
  std::vector<std::string> names;
  std::vector<kernels::Tensor> values;  // (1) each
};

constexpr std::size_t kFirstSummary = 2;  // after loss_sum and token_count

// The factor on the loss that keeps gradients in f16 from vanishing or overflowing (Micikevicius et al.,
// Mixed precision training, 2018). It is doubled after many steps with finite gradients and halved after a
// step without. Both tensors are empty for other dtypes.
struct LossScale {
  kernels::Tensor state;  // input "optimizer/loss_scale" (1): 0 before the first step
  kernels::Tensor value;  // (1)
};
// Declares the input and writes the calls that compute the value.
LossScale loss_scale(kernels::Builder& builder);

// A state of the model that a step changes from `before` to `after`, or not at all when it is skipped. The
// result overwrites `homes`.
struct StateUpdate {
  kernels::Tensor before, after;
  std::vector<kernels::Tensor> homes;
};

// Donates a persistent `input` to `output`, its new value, which takes its name.
void carry(kernels::Builder& builder, kernels::Tensor input, kernels::Tensor output);

// The names of the entries of "metrics" for these sums, in order; "loss_scale" comes last if the loss is
// scaled.
std::vector<std::string> metric_names(const std::vector<std::string>& sums, bool scaled);

// Inputs are "lr" and "optimizer/...", the output is "metrics". Every trainable parameter (`infos`) and all
// `states` are updated in place (donated). When apply = 0 all of them keep their bits.
//   norm  = sqrt(sum over gradients of their squares) / token_count
//   scale = min(1, max_norm / norm) / token_count
//   apply = 1 where norm is finite (it is not when there is no token), else 0;  step' = step + apply
// With a loss scale, gradients are larger by that factor, and token_count above means its product with the
// scale.
// With `in_backward` no parameter's update waits for the others' gradients (optimizer_in_backward.h): `apply` and `scale` are
// those of the norm of its own gradient, so that a step with a gradient that is not finite updates the other parameters and does
// not count; it must not clip.
void write_update(kernels::Builder& builder, const Learner::Config& learner,
                  const std::vector<layers::ParameterInfo>& infos,
                  const std::vector<kernels::Tensor>& parameters,
                  const std::vector<kernels::Tensor>& gradients, const std::vector<StateUpdate>& states,
                  const BatchSums& sums, const LossScale& scale, bool in_backward = false);

// Adds gradients and sums to the persistent "grad/<path>" and "accumulate/<name>"; summaries are weighted by
// the micro-batch's tokens.
void write_accumulation(kernels::Builder& builder, const std::vector<layers::ParameterInfo>& infos,
                        const std::vector<kernels::Tensor>& gradients, const BatchSums& sums);

// The program of Step::apply: updates from these sums, then sets them to zero. Summaries become means over the
// tokens. Micro-batches change the model's `states` before it is known whether the step is skipped;
// "accumulate/before/<state>" holds each state as it was before the step, and a skipped step restores it.
// Before the first step the host copies the states there. Without `clear` the sums stay as they are. `parts` are further sums,
// "grad/" + second, of what belongs to the gradient of the parameter `first` (stages.h).
kernels::Program apply_program(const kernels::Catalog& catalog, const Learner::Config& learner,
                               const std::vector<layers::ParameterInfo>& infos,
                               const std::vector<std::string>& sum_names,
                               const std::vector<kernels::Value>& states, bool scaled, bool clear = true,
                               const std::vector<std::pair<std::string, std::string>>& parts = {});

}  // namespace meshloom::trainer
