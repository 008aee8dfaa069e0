#include "trainer/learner/adafactor.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::trainer {

using kernels::Tensor;

void Adafactor::Config::fields(layers::FieldVisitor& v) {
  Learner::Config::fields(v);
  v("decay_power", decay_power,
    {"The running mean of squares decays by 1 - step^-decay_power.",
     layers::Range{.min = 0, .max = 1, .exclusive_min = true}});
  v("square_eps", square_eps, {"Added to the squared gradients.", layers::above(0), layers::formerly("eps")});
  v("clip_threshold", clip_threshold,
    {"The root mean square of an update above which it is scaled down to it.", layers::above(0),
     layers::formerly("clip")});
  v("scale_parameter", scale_parameter,
    {"Whether updates are multiplied by the root mean square of the parameter.",
     layers::formerly("relative")});
  v("min_scale", min_scale,
    {"The lower bound of that root mean square.", layers::above(0), layers::formerly("least_size")});
  v("weight_decay", weight_decay,
    {"Fraction of a parameter that each step subtracts, times the learning rate.", layers::at_least(0),
     layers::means("decay times the learning rate")});
}

std::vector<Slot> Adafactor::Config::slots(const layers::ParameterInfo& info) const {
  if (!holds_matrices(info)) return {slot_like(info, "v")};
  // A slot of the parameter's shape without its last dimension but `from_end`.
  const auto without = [&](const char* name, int from_end) {
    Slot slot{name, info.type, info.axes};
    slot.type.shape.erase(slot.type.shape.end() - 1 - from_end);
    slot.axes.erase(slot.axes.end() - 1 - from_end);
    return slot;
  };
  return {without("row", 0), without("column", 1)};
}

std::vector<Tensor> Adafactor::Config::update(const Update& u) const {
  kernels::Builder& builder = *u.parameter.builder;
  const Control& control = u.control;
  const kernels::Shape& shape = u.info.type.shape;
  const double elements = static_cast<double>(u.info.type.elements());
  const auto [g, scale, inverse_x] = kernels::inputs<3>();
  const Tensor squares =
      kernels::elementwise({u.gradient, control.scale}, g * scale * (g * scale) + square_eps);
  // The next value of a slot, from the sum of `count` squares.
  const auto next = [&](Tensor slot, Tensor sum, double count) {
    const auto [average, total, apply, t] = kernels::inputs<4>();
    const kernels::Expr rest = exp(-decay_power * log(t));
    return kernels::elementwise({slot, sum, control.apply, control.step},
                                select(apply, (1 - rest) * average + rest * (1 / count * total), average));
  };
  std::vector<Tensor> slots;
  Tensor inverse;  // 1 / sqrt(second moments)
  if (holds_matrices(u.info)) {
    const std::int64_t rows = shape[shape.size() - 2], columns = shape.back(),
                       all = u.info.type.elements() / columns;
    const std::int64_t experts = all / rows;
    const auto ones = [&](std::int64_t m, std::int64_t n) { return kernels::constant(builder, 1, {m, n}); };
    const Tensor by_row = kernels::matmul(kernels::reshape(squares, {all, columns}), ones(columns, 1));
    const Tensor by_column =
        experts == 1 ? kernels::reduce_sum(squares, 1)
                     : kernels::matmul(kernels::constant(builder, 1, {experts, 1, rows}), squares);
    slots = {next(u.slots.at(0), kernels::reshape(by_row, u.slots.at(0).type().shape),
                  static_cast<double>(columns)),
             next(u.slots.at(1), kernels::reshape(by_column, u.slots.at(1).type().shape),
                  static_cast<double>(rows))};
    // The sum over all rows, repeated for every row.
    const Tensor of_rows = kernels::reshape(slots[0], {experts, rows});
    const Tensor row_sums =
        experts == 1 ? kernels::reduce_sum(slots[0], 0) : kernels::matmul(of_rows, ones(rows, rows));
    const auto [mean, total] = kernels::inputs<2>();
    const Tensor row =
        kernels::elementwise({of_rows, row_sums}, sqrt(1 / static_cast<double>(rows) * total / mean));
    const Tensor column = kernels::elementwise({slots[1]}, rsqrt(kernels::Expr::input(0)));
    inverse = experts == 1
                  ? kernels::matmul(kernels::reshape(row, {rows, 1}), kernels::reshape(column, {1, columns}))
                  : kernels::matmul(kernels::reshape(row, {experts, rows, 1}),
                                    kernels::reshape(column, {experts, 1, columns}));
    inverse = kernels::reshape(inverse, shape);
  } else {
    slots = {next(u.slots.at(0), squares, 1)};
    inverse = kernels::elementwise({slots[0]}, rsqrt(kernels::Expr::input(0)));
  }
  const Tensor step = kernels::elementwise({u.gradient, control.scale, inverse}, g * scale * inverse_x);
  const auto rms = [&](const kernels::Expr& sum) { return sqrt(1 / elements * sum); };
  std::vector<Tensor> sums{kernels::square_sum(step)};
  if (scale_parameter) sums.push_back(kernels::square_sum(u.parameter));
  const auto [of_step, of_parameter] = kernels::inputs<2>();
  const kernels::Expr size = scale_parameter ? max(min_scale, rms(of_parameter)) : kernels::Expr(1);
  const Tensor factor = kernels::elementwise(sums, size / max(1, 1 / clip_threshold * rms(of_step)));
  const auto [p, direction, factor_x, rate, apply] = kernels::inputs<5>();
  std::vector<Tensor> result{kernels::elementwise(
      {u.parameter, step, factor, control.rate, control.apply},
      select(apply, p - rate * (direction * factor_x + u.info.decay * weight_decay * p), p))};
  result.insert(result.end(), slots.begin(), slots.end());
  return result;
}

void Adafactor::Config::check() const {
  Learner::Config::check();
  require(decay_power > 0 && decay_power <= 1, "decay_power", "must be above 0 and at most 1", decay_power);
  require(square_eps > 0, "square_eps", "must be above 0", square_eps);
  require(clip_threshold > 0, "clip_threshold", "must be above 0", clip_threshold);
  require(min_scale > 0, "min_scale", "must be above 0", min_scale);
  require(weight_decay >= 0, "weight_decay", "must be at least 0", weight_decay);
}

void add_adafactor_classes(layers::ClassTable& classes) { classes.add<Adafactor::Config>(); }

}  // namespace meshloom::trainer
