#include "trainer/compose/differentiate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/elementwise/elementwise.h"
#include "kernels/iota/iota.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/verify.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "support.h"
#include "trainer/compose/fuse.h"
#include "trainer/compose/graph.h"

namespace meshloom::tests {
namespace {

using kernels::Builder;
using kernels::HostTensor;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;

// A model's program with gradients, and inputs for it.
struct Differentiated {
  layers::Traced traced;
  std::vector<kernels::ValueId> gradients;
  Memory inputs;

  explicit Differentiated(const layers::Config& model) : traced(layers::trace_loss(model, catalog(), 3, 5)) {
    const Batch batch = random_batch(3, 5, layers::vocabulary(model), 7);
    set("tokens", traced.tokens, batch.tokens.data());
    set("targets", traced.targets, batch.targets.data());
    Builder builder(catalog(), traced.program);
    std::vector<Tensor> parameters;
    std::mt19937_64 random(11);
    for (const layers::ParameterInfo& info : traced.parameters) {
      HostTensor value(info.type);
      info.initialize(5, value.as<float>());
      // Constant initial values hide errors.
      for (std::int64_t i = 0; i < info.type.elements(); ++i)
        value.as<float>()[i] += std::uniform_real_distribution<float>(-0.3f, 0.3f)(random);
      inputs[info.path] = value;
    }
    for (kernels::ValueId id : traced.program.inputs)
      if (traced.program.value(id).role == Role::parameter) parameters.push_back(builder.tensor(id));
    for (Tensor gradient : trainer::differentiate(builder, builder.tensor(traced.loss_sum), parameters)) {
      gradients.push_back(gradient.id);
      builder.output(gradient);
    }
    trainer::remove_dead_calls(traced.program);
    kernels::verify(traced.program, catalog(), "differentiate");
  }

  void set(const std::string& name, kernels::ValueId id, const std::int32_t* data) {
    HostTensor value(traced.program.value(id).type);
    std::copy_n(data, value.type.elements(), value.as<std::int32_t>());
    inputs[name] = value;
  }

  double loss(const Memory& memory) const {
    return interpret(traced.program, catalog(), memory)[static_cast<std::size_t>(traced.loss_sum)]
        .as<float>()[0];
  }
};

// Along a random direction in all parameters at once, and along one parameter at a time.
void check_against_differences(const layers::Config& model) {
  const Differentiated d(model);
  const std::vector<HostTensor> values = interpret(d.traced.program, catalog(), d.inputs);
  for (std::size_t only = 0; only <= d.gradients.size(); ++only) {
    std::mt19937_64 random(only);
    double slope = 0, norm = 0;
    std::map<std::string, std::vector<double>> direction;
    for (std::size_t i = 0; i < d.gradients.size(); ++i) {
      if (only < d.gradients.size() && i != only) continue;
      const HostTensor& gradient = values[static_cast<std::size_t>(d.gradients[i])];
      // Partly along the gradient, so that the slope is far from 0.
      for (std::int64_t k = 0; k < gradient.type.elements(); ++k) {
        const double g = gradient.as<float>()[k];
        const double step = g + 0.3 * std::abs(g) * std::normal_distribution<double>()(random);
        direction[d.traced.parameters[i].path].push_back(step);
        slope += step * g;
        norm += step * step;
      }
    }
    norm = std::sqrt(norm);
    ASSERT_GT(norm, 0);
    slope /= norm;
    // Central differences at two steps, extrapolated to a step of 0 (Richardson).
    const auto difference_at = [&](double step) {
      Memory up = d.inputs, down = d.inputs;
      for (const auto& [path, steps] : direction)
        for (std::size_t k = 0; k < steps.size(); ++k) {
          up[path].as<float>()[k] += static_cast<float>(step * steps[k] / norm);
          down[path].as<float>()[k] -= static_cast<float>(step * steps[k] / norm);
        }
      return (d.loss(up) - d.loss(down)) / (2 * step);
    };
    const double difference = (4 * difference_at(5e-3) - difference_at(1e-2)) / 3;
    EXPECT_NEAR(slope, difference, 2e-3 * std::abs(slope) + 3e-3)
        << (only < d.gradients.size() ? d.traced.parameters[only].path : "all parameters");
  }
}

TEST(Differentiate, LlamaAgainstDifferences) { check_against_differences(tiny_llama()); }
TEST(Differentiate, Gpt2AgainstDifferences) { check_against_differences(tiny_gpt2()); }

TEST(Differentiate, FusionKeepsGradients) {
  for (const layers::CausalLM::Config& model : {tiny_llama(), tiny_gpt2()}) {
    const Differentiated d(model);
    const Program fused = trainer::fuse(d.traced.program, catalog());
    kernels::verify(fused, catalog(), "fuse");
    EXPECT_LT(fused.calls.size(), d.traced.program.calls.size());
    const std::vector<HostTensor> before = interpret(d.traced.program, catalog(), d.inputs),
                                  after = interpret(fused, catalog(), d.inputs);
    for (std::size_t i = 0; i < d.traced.program.outputs.size(); ++i) {
      const HostTensor& a = before[static_cast<std::size_t>(d.traced.program.outputs[i])];
      const HostTensor& b = after[static_cast<std::size_t>(fused.outputs[i])];
      double most = 0;
      for (std::int64_t k = 0; k < a.type.elements(); ++k)
        most = std::max(most, std::abs(static_cast<double>(a.as<float>()[k])));
      for (std::int64_t k = 0; k < a.type.elements(); ++k)
        ASSERT_NEAR(a.as<float>()[k], b.as<float>()[k], 2e-6 * most + 1e-7)
            << fused.value(fused.outputs[i]).name;
    }
  }
}

TEST(Differentiate, SumsCotangentsOfSeveralReaders) {
  Program program;
  Builder builder(catalog(), program);
  const Tensor x = builder.input("x", {kernels::DType::f32, {3}}, Role::parameter);
  const Tensor y = kernels::mul(x, x);
  const Tensor z = kernels::reduce_sum(kernels::add(kernels::mul(y, x), y), 0);  // x^3 + x^2
  const Tensor g = trainer::differentiate(builder, z, {x})[0];
  EXPECT_EQ(program.value(g.id).name, "grad/x");
  EXPECT_EQ(program.value(g.id).role, Role::gradient);
  HostTensor in(x.type());
  for (int i = 0; i < 3; ++i) in.as<float>()[i] = 0.5f + static_cast<float>(i);
  const std::vector<HostTensor> values = interpret(program, catalog(), {{"x", in}});
  for (int i = 0; i < 3; ++i) {
    const float v = in.as<float>()[i];
    EXPECT_NEAR(values[static_cast<std::size_t>(g.id)].as<float>()[i], 3 * v * v + 2 * v, 1e-4);
  }
}

TEST(Differentiate, RefusesWhatDoesNotInfluenceTheLoss) {
  Program program;
  Builder builder(catalog(), program);
  const Tensor x = builder.input("x", {kernels::DType::f32, {3}}, Role::parameter);
  const Tensor y = builder.input("unused/weight", {kernels::DType::f32, {3}}, Role::parameter);
  const Tensor loss = kernels::reduce_sum(x, 0);
  try {
    trainer::differentiate(builder, loss, {x, y});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("unused/weight"), std::string::npos) << error.what();
  }
}

TEST(Differentiate, RefusesOpsWithoutGradient) {
  Program program;
  Builder builder(catalog(), program);
  const Tensor x = builder.input("x", {kernels::DType::f32, {3}}, Role::parameter);
  const Tensor loss = kernels::square_sum(x);
  EXPECT_THROW(trainer::differentiate(builder, loss, {x}), Error);
  EXPECT_THROW(trainer::differentiate(builder, x, {x}), Error);  // not a single number
}

}  // namespace
}  // namespace meshloom::tests
