#include "trainer/compose/passes/update.h"

#include <map>
#include <utility>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "trainer/compose/step.h"

namespace meshloom::trainer {
namespace {

using kernels::Builder;
using kernels::Role;
using kernels::Tensor;
using kernels::TensorType;

const TensorType kOne{kernels::DType::f32, {1}};

// Loss scaling: after kGoodSteps steps in a row with finite gradients the scale doubles, up to a maximum that
// keeps the gradient of one token's loss, which is at most 1, within f16. A step without finite gradients
// halves it.
constexpr int kGoodSteps = 1000;
constexpr double kFirstScale = 4096, kMaxScale = 32768;

}  // namespace

void carry(Builder& builder, Tensor input, Tensor output) {
  const kernels::Value value = builder.program().value(input.id);
  builder.donate(input, output);
  builder.output(output);
  builder.role(output, value.role);
  builder.name(output, value.name);
  if (!value.axes.empty()) builder.axes(output, value.axes);
}

namespace {

// The next scale and the number of good steps in a row.
void write_scale(Builder& builder, Tensor squares, Tensor scale, Tensor state) {
  const Tensor good = builder.input("optimizer/loss_scale_steps", kOne, Role::optimizer);
  const auto [squares_x, now, good_steps] = kernels::inputs<3>();
  const kernels::Expr finite = is_finite(squares_x), due = good_steps > kGoodSteps - 1.5;
  const std::vector<Tensor> next =
      kernels::elementwise({squares, scale, good},
                           {select(finite, select(due, min(now * 2, kMaxScale), now), max(now * 0.5, 1)),
                            select(finite, select(due, 0, good_steps + 1), 0)},
                           {1});
  carry(builder, state, next[0]);
  carry(builder, good, next[1]);
}

}  // namespace

LossScale loss_scale(Builder& builder) {
  const kernels::Phase phase = std::exchange(builder.phase, kernels::Phase::backward);
  const Tensor state = builder.input("optimizer/loss_scale", kOne, Role::optimizer);
  const kernels::Expr stored = kernels::Expr::input(0);
  const Tensor scale = kernels::elementwise({state}, select(stored > 0, stored, kFirstScale));
  builder.phase = phase;
  return {state, scale};
}

std::vector<std::string> metric_names(const std::vector<std::string>& sums, bool scaled) {
  std::vector<std::string> names{"loss_sum", "token_count", "gradient_norm", "applied", "step"};
  names.insert(names.end(), sums.begin() + kFirstSummary, sums.end());
  if (scaled) names.push_back("loss_scale");
  return names;
}

void write_update(Builder& builder, const Learner::Config& learner,
                  const std::vector<layers::ParameterInfo>& infos, const std::vector<Tensor>& parameters,
                  const std::vector<Tensor>& gradients, const std::vector<StateUpdate>& states,
                  const BatchSums& sums, const LossScale& scale, bool in_backward) {
  builder.phase = kernels::Phase::update;
  builder.path = "learner";
  const Tensor lr = builder.input("lr", kOne, Role::input);
  const Tensor step = builder.input("optimizer/step", kOne, Role::optimizer);
  std::vector<Tensor> squares;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    builder.path = "learner/" + infos[i].path;
    squares.push_back(kernels::square_sum(gradients[i]));
  }
  builder.path = "learner";
  const Tensor total = kernels::reduce_sum(kernels::stack(squares), 0);

  const auto [sum_of_squares, tokens, last_step, loss_scale_x] = kernels::inputs<4>();
  const kernels::Expr count = scale.value ? tokens * loss_scale_x : tokens;
  const kernels::Expr norm = sqrt(sum_of_squares) / count, finite = is_finite(norm);
  // max(1, norm / max_norm) avoids a division by a norm of 0.
  const kernels::Expr clip =
      learner.clip_norm > 0 ? 1 / max(1, norm * (1 / learner.clip_norm)) : kernels::Expr(1);
  std::vector<Tensor> known{total, sums.values[1], step};
  if (scale.value) known.push_back(scale.value);
  const std::vector<Tensor> scalars =
      kernels::elementwise(known, {norm, select(finite, clip / count, 0), finite, last_step + finite}, {1});
  const auto rate_of = [&](double factor) { return factor == 1 ? lr : kernels::scale(lr, factor); };
  const auto control_of = [](Tensor rate, Tensor factor, Tensor apply, Tensor number) {
    return Control{rate, factor, apply, number, kernels::stack({rate, factor, apply, number})};
  };
  std::map<double, Control> controls;  // by factor on the learning rate
  if (!in_backward)
    for (const layers::ParameterInfo& info : infos)
      if (!controls.count(info.learning_rate))
        controls[info.learning_rate] =
            control_of(rate_of(info.learning_rate), scalars[1], scalars[2], scalars[3]);
  const auto [x] = kernels::inputs<1>();
  const Tensor next_step = in_backward ? kernels::elementwise({step}, x + 1) : Tensor{};
  const auto own_control = [&](std::size_t i) {
    const auto [squares_x, tokens_x] = kernels::inputs<2>();
    const kernels::Expr known_norm = is_finite(sqrt(squares_x) / tokens_x);
    const std::vector<Tensor> own = kernels::elementwise(
        {squares[i], sums.values[1]}, {select(known_norm, 1 / tokens_x, 0), known_norm}, {1});
    return control_of(rate_of(infos[i].learning_rate), own[0], own[1], next_step);
  };
  carry(builder, step, scalars[3]);
  if (scale.value) write_scale(builder, total, scale.value, scale.state);

  for (std::size_t i = 0; i < infos.size(); ++i) {
    builder.path = "learner/" + infos[i].path;
    Update update{infos[i],
                  parameters[i],
                  gradients[i],
                  {},
                  in_backward ? own_control(i) : controls.at(infos[i].learning_rate)};
    const auto input = [&](const Slot& slot) {
      return builder.input("optimizer/" + slot.name + "/" + infos[i].path, slot.type, Role::optimizer,
                           slot.axes);
    };
    for (const Slot& slot : learner.slots(infos[i])) update.slots.push_back(input(slot));
    const std::vector<Tensor> next = learner.update(update);
    carry(builder, parameters[i], next.at(0));
    if (learner.ema) {
      const Tensor average = input(slot_like(infos[i], "ema"));
      carry(builder, average,
            learner.ema->next(average, next.at(0), update.control.apply, update.control.step));
    }
    for (std::size_t s = 0; s < update.slots.size(); ++s) carry(builder, update.slots[s], next.at(s + 1));
  }

  for (const StateUpdate& state : states) {
    builder.path = "learner/" + builder.program().value(state.homes.front().id).name;
    const auto [applied, after, before] = kernels::inputs<3>();
    const std::vector<Tensor> next = kernels::elementwise(
        {scalars[2], state.after, state.before},
        std::vector<kernels::Expr>(state.homes.size(), select(applied, after, before)), state.before.shape());
    for (std::size_t i = 0; i < next.size(); ++i) carry(builder, state.homes[i], next[i]);
  }

  builder.path = "metrics";
  std::vector<Tensor> metrics{sums.values[0], sums.values[1], scalars[0], scalars[2], scalars[3]};
  metrics.insert(metrics.end(), sums.values.begin() + kFirstSummary, sums.values.end());
  if (scale.value) metrics.push_back(scale.value);
  const Tensor all = kernels::stack(metrics);
  builder.name(all, "metrics");
  builder.role(all, Role::state);
  builder.output(all);
}

void write_accumulation(Builder& builder, const std::vector<layers::ParameterInfo>& infos,
                        const std::vector<Tensor>& gradients, const BatchSums& sums) {
  // These calls are part of the backward pass, so that the matmul of a gradient can add directly to its sum.
  builder.phase = kernels::Phase::backward;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    builder.path = infos[i].path;
    const Tensor sum = builder.input("grad/" + infos[i].path, infos[i].type, Role::gradient, infos[i].axes);
    carry(builder, sum, kernels::add(sum, gradients[i]));
  }
  builder.path = "metrics";
  for (std::size_t i = 0; i < sums.values.size(); ++i) {
    const Tensor sum = builder.input("accumulate/" + sums.names[i], kOne, Role::state);
    carry(
        builder, sum,
        kernels::add(sum, i < kFirstSummary ? sums.values[i] : kernels::mul(sums.values[i], sums.values[1])));
  }
}

kernels::Program apply_program(const kernels::Catalog& catalog, const Learner::Config& learner,
                               const std::vector<layers::ParameterInfo>& infos,
                               const std::vector<std::string>& sum_names,
                               const std::vector<kernels::Value>& states, bool scaled, bool clear,
                               const std::vector<std::pair<std::string, std::string>>& parts) {
  kernels::Program program;
  program.name = to_string(Step::apply);
  Builder builder(catalog, program);
  builder.phase = kernels::Phase::update;
  const auto [sum, tokens] = kernels::inputs<2>();
  std::vector<Tensor> parameters, gradients, summed, stored;
  for (const layers::ParameterInfo& info : infos) {
    parameters.push_back(builder.input(info.path, info.type, Role::parameter, info.axes));
    const auto sum_at = [&](const std::string& path) {
      summed.push_back(builder.input("grad/" + path, info.type, Role::gradient, info.axes));
      return summed.back();
    };
    Tensor gradient = sum_at(info.path);
    builder.path = "learner/" + info.path;
    for (const auto& [parameter, part] : parts)
      if (parameter == info.path) gradient = kernels::add(gradient, sum_at(part));
    gradients.push_back(gradient);
  }
  BatchSums sums{sum_names, {}};
  builder.path = "metrics";
  for (std::size_t i = 0; i < sum_names.size(); ++i) {
    stored.push_back(builder.input("accumulate/" + sum_names[i], kOne, Role::state));
    sums.values.push_back(
        i < kFirstSummary ? stored[i] : kernels::elementwise({stored[i], stored[1]}, sum / max(tokens, 1)));
  }
  std::vector<StateUpdate> updates;
  for (const kernels::Value& state : states) {
    const Tensor moved = builder.input(state.name, state.type, Role::state, state.axes);
    const Tensor before =
        builder.input("accumulate/before/" + state.name, state.type, Role::state, state.axes);
    updates.push_back({before, moved, {moved, before}});
  }
  write_update(builder, learner, infos, parameters, gradients, updates, sums,
               scaled ? loss_scale(builder) : LossScale{});
  if (!clear) return program;
  builder.path = "accumulate";
  for (const std::vector<Tensor>* list : {&summed, &stored})
    for (const Tensor& sum : *list) carry(builder, sum, kernels::constant(builder, 0.0, sum.shape()));
  return program;
}

}  // namespace meshloom::trainer
