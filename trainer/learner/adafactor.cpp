#include "trainer/learner/adafactor.h"

#include <fmt/format.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::trainer {
namespace {

using kernels::Tensor;

bool factored(const layers::ParameterInfo& info) { return info.type.rank() == 2; }

}  // namespace

void Adafactor::Config::fields(layers::FieldVisitor& v) {
  Learner::Config::fields(v);
  v("decay_power", decay_power);
  v("eps", eps);
  v("clip", clip);
  v("relative", relative);
  v("least_size", least_size);
  v("weight_decay", weight_decay);
}

std::vector<Slot> Adafactor::Config::slots(const layers::ParameterInfo& info) const {
  if (!factored(info)) return {slot_like(info, "v")};
  const auto one = [&](const char* name, std::size_t axis) {
    return Slot{name, {info.type.dtype, {info.type.shape[axis]}}, {info.axes.at(axis)}};
  };
  return {one("row", 0), one("column", 1)};
}

std::vector<Tensor> Adafactor::Config::update(const Update& u) const {
  kernels::Builder& builder = *u.parameter.builder;
  const Control& control = u.control;
  const kernels::Shape& shape = u.info.type.shape;
  const double elements = static_cast<double>(u.info.type.elements());
  const Tensor squares =
      kernels::elementwise({u.gradient, control.scale}, fmt::format("add(mul(mul(x0,x1),mul(x0,x1)),{})", eps));
  // The next value of a slot, from `count` summed squares.
  const auto next = [&](Tensor slot, Tensor sum, double count) {
    const std::string rest = fmt::format("exp(mul({},log(x3)))", -decay_power);
    return kernels::elementwise(
        {slot, sum, control.apply, control.step},
        fmt::format("t0={0};select(x2,add(mul(sub(1,t0),x0),mul(t0,mul({1},x1))),x0)", rest, 1 / count));
  };
  std::vector<Tensor> slots;
  Tensor inverse;  // of the root of the second moments
  if (factored(u.info)) {
    const std::int64_t rows = shape[0], columns = shape[1];
    const Tensor by_row =
        kernels::reshape(kernels::matmul(squares, kernels::constant(builder, 1, {columns, 1})), {rows});
    slots = {next(u.slots.at(0), by_row, static_cast<double>(columns)),
             next(u.slots.at(1), kernels::reduce_sum(squares, 1), static_cast<double>(rows))};
    const Tensor row = kernels::elementwise({slots[0], kernels::reduce_sum(slots[0], 0)},
                                            fmt::format("sqrt(div(mul({},x1),x0))", 1 / static_cast<double>(rows)));
    const Tensor column = kernels::elementwise({slots[1]}, "rsqrt(x0)");
    inverse = kernels::matmul(kernels::reshape(row, {rows, 1}), kernels::reshape(column, {1, columns}));
  } else {
    slots = {next(u.slots.at(0), squares, 1)};
    inverse = kernels::elementwise({slots[0]}, "rsqrt(x0)");
  }
  const Tensor step = kernels::elementwise({u.gradient, control.scale, inverse}, "mul(mul(x0,x1),x2)");
  const auto rms = [&](const char* sum) { return fmt::format("sqrt(mul({},{}))", 1 / elements, sum); };
  std::vector<Tensor> sums{kernels::square_sum(step)};
  if (relative) sums.push_back(kernels::square_sum(u.parameter));
  const Tensor factor = kernels::elementwise(
      sums, fmt::format("div({},max(1,mul({},{})))",
                        relative ? fmt::format("max({},{})", least_size, rms("x1")) : "1", 1 / clip, rms("x0")));
  std::vector<Tensor> result{kernels::elementwise(
      {u.parameter, step, factor, control.rate, control.apply},
      fmt::format("select(x4,sub(x0,mul(x3,add(mul(x1,x2),mul({},x0)))),x0)", u.info.decay * weight_decay))};
  result.insert(result.end(), slots.begin(), slots.end());
  return result;
}

void Adafactor::Config::check() const {
  Learner::Config::check();
  require(decay_power > 0 && decay_power <= 1, "decay_power", "must be above 0 and at most 1", decay_power);
  require(eps > 0, "eps", "must be above 0", eps);
  require(clip > 0, "clip", "must be above 0", clip);
  require(least_size > 0, "least_size", "must be above 0", least_size);
  require(weight_decay >= 0, "weight_decay", "must be at least 0", weight_decay);
}

}  // namespace meshloom::trainer
