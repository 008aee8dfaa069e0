#include "tests/trainer/learner/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/core/catalog.h"
#include "kernels/layout/layout.h"
#include "layers/config/describe.h"
#include "layers/config/tree.h"
#include "tests/kernels/interpret.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::tests {
namespace {

layers::ClassTable classes() {
  layers::ClassTable table;
  trainer::add_learner_classes(table);
  return table;
}

}  // namespace

std::vector<std::string> learner_names() {
  for (const layers::InterfaceDescription& interface : layers::describe_interfaces(trainer::recipe_classes()))
    if (interface.name == "Learner") return interface.classes;
  return {};
}

std::unique_ptr<layers::Config> parse_learner(const std::string& text) {
  return layers::parse(text, classes(), "learner");
}

Updated run_updates(const trainer::Learner::Config& learner, const ParameterShape& shape,
                    const Doubles& start, const std::vector<GradientStep>& steps, const std::string& axis) {
  static const kernels::Catalog catalog = [] {
    kernels::Catalog all;
    kernels::add_contracts(all);
    return all;
  }();
  layers::ParameterInfo info;
  info.path = "p";
  info.type = {kernels::DType::f32,
               shape.columns ? kernels::Shape{shape.rows, shape.columns} : kernels::Shape{shape.rows}};
  info.axes = shape.columns ? std::vector<std::string>{axis, "embed"} : std::vector<std::string>{axis};
  info.decay = shape.columns ? 1 : 0;
  if (shape.experts) {
    info.type.shape.insert(info.type.shape.begin(), shape.experts);
    info.axes.insert(info.axes.begin(), "expert");
  }
  kernels::Program program;
  kernels::Builder builder(catalog, program);
  const kernels::TensorType one{kernels::DType::f32, {1}};
  const auto input = [&](const char* name, const kernels::TensorType& type) {
    return builder.input(name, type, kernels::Role::input);
  };
  trainer::Update update{info, input("p", info.type), input("g", info.type), {}, {}};
  update.control = {input("rate", one), input("scale", one), input("apply", one), input("step", one), {}};
  update.control.all =
      kernels::stack({update.control.rate, update.control.scale, update.control.apply, update.control.step});
  std::vector<trainer::Slot> slots = learner.slots(info);
  for (const trainer::Slot& slot : slots)
    update.slots.push_back(builder.input(slot.name, slot.type, kernels::Role::optimizer));
  std::vector<kernels::Tensor> next = learner.update(update);
  EXPECT_EQ(next.size(), slots.size() + 1);
  if (learner.ema) {
    slots.push_back(trainer::slot_like(info, "ema"));
    update.slots.push_back(builder.input("ema", info.type, kernels::Role::optimizer));
    next.push_back(
        learner.ema->next(update.slots.back(), next[0], update.control.apply, update.control.step));
  }

  Values values;
  const auto put = [&](kernels::Tensor tensor, const Doubles& data) {
    kernels::HostTensor& value = values[tensor.id] = kernels::HostTensor(tensor.type());
    for (std::size_t i = 0; i < data.size(); ++i) value.as<float>()[i] = static_cast<float>(data[i]);
  };
  put(update.parameter, start);
  for (const kernels::Tensor& slot : update.slots)
    values[slot.id] = kernels::HostTensor(slot.type());  // zeros
  double applied = 0;
  for (const GradientStep& step : steps) {
    applied += step.apply;
    put(update.gradient, step.gradient);
    put(update.control.rate, {step.rate});
    put(update.control.scale, {step.scale});
    put(update.control.apply, {step.apply ? 1.0 : 0.0});
    put(update.control.step, {applied});
    values = interpret(program, catalog, std::move(values));
    values[update.parameter.id] = values.at(next[0].id);
    for (std::size_t i = 0; i < slots.size(); ++i) values[update.slots[i].id] = values.at(next[i + 1].id);
  }
  const auto take = [&](kernels::Tensor tensor) {
    const float* data = values.at(tensor.id).as<float>();
    return Doubles(data, data + tensor.type().elements());
  };
  Updated result{take(update.parameter), {}};
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (slots[i].type.dtype == kernels::DType::f32) result.slots[slots[i].name] = take(update.slots[i]);
  return result;
}

Doubles random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Doubles values(count);
  for (double& x : values)
    x = static_cast<double>(static_cast<float>(std::normal_distribution<double>()(random)));
  return values;
}

void expect_follows(const std::string& text, const ParameterShape& shape, const Oracle& oracle,
                    double tolerance, const std::string& axis) {
  SCOPED_TRACE(text + " on " + std::to_string(shape.rows) + "x" + std::to_string(shape.columns));
  const auto config = parse_learner(text);
  const auto& learner = dynamic_cast<const trainer::Learner::Config&>(*config);
  learner.check();
  const std::size_t count = static_cast<std::size_t>(shape.rows * std::max<std::int64_t>(1, shape.columns));
  const Doubles start = random_values(count, 1);
  std::vector<GradientStep> steps;
  for (std::uint64_t i = 0; i < 5; ++i)
    steps.push_back(
        {random_values(count, 10 + i), 1e-2 * static_cast<double>(i + 1), i == 1 ? 0.25 : 0.5, i != 2});
  steps[2].gradient[0] = INFINITY;  // this one is skipped
  steps[2].gradient.back() = NAN;
  steps[2].scale = 0;
  const Updated got = run_updates(learner, shape, start, steps, axis);
  Doubles p = start;
  std::map<std::string, Doubles> slots;
  double step = 0;
  for (const GradientStep& s : steps) {
    if (!s.apply) continue;
    Doubles g = s.gradient;
    for (double& x : g) x *= s.scale;
    oracle(p, slots, g, s.rate, ++step, shape);
  }
  for (std::size_t i = 0; i < p.size(); ++i)
    ASSERT_NEAR(got.parameter[i], p[i], tolerance * std::max(1.0, std::abs(p[i]))) << i;
  for (const auto& [name, values] : slots)
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(got.slots.at(name).at(i), values[i], tolerance * std::max(1.0, std::abs(values[i])))
          << name << i;
}

Doubles& slot(std::map<std::string, Doubles>& slots, const char* name, std::size_t count) {
  Doubles& values = slots[name];
  values.resize(count, 0);
  return values;
}

const std::vector<ParameterShape> kShapes{{5, 3}, {3, 7}, {6, 0}, {1, 1}};

double decay_of(const ParameterShape& shape, double decay) { return shape.columns ? decay : 0; }

}  // namespace meshloom::tests
