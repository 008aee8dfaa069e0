// Gradients of a whole model, by the contracts' references, against differences of its loss.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/program/verify.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/differentiate.h"

namespace meshloom::tests {

// Of three rows of 5 places: two preferences, one, and half a one, which counts nothing. Some of their targets are ignored.
inline constexpr float kAnswers[15] = {0, 1, -1, 2, -2, 1, -1, 1, -1, -2, 1, 0, 0, 0, 0};
inline constexpr float kReference[15] = {0, -2.5F, -3.5F, -1, -2, -4, 0, -9, -6.5F, 0, -2, 0, 0, 0, 0};

// Ratios of the probabilities now and then are far from those where they are clipped, as the derivatives change there.
inline constexpr float kAdvantages[15] = {1, -1, 0.5F, 2, -2, 0, 1.5F, -0.5F, 0.2F, -1, 1, 1, -1, -2, 0.3F},
                       kOldLogprobs[15] = {-3,     -3.1F, -3.1F, -8, -1, -3,    -3, -2.8F,
                                           -3.05F, -8,    -1,    -3, -3, -1.2F, -3};

// tiny_llama() with a loss, such as "DPOLoss{beta=1}".
inline layers::CausalLM::Config with_loss(const std::string& loss) {
  layers::ClassTable table;
  layers::add_layer_classes(table);
  layers::CausalLM::Config model = tiny_llama();
  layers::set(model, "loss", loss, table);
  return model;
}

// Tokens of a row's source, where the model reads one.
inline std::int64_t source_of(const layers::Config& model) { return layers::reads_source(model) ? 7 : 0; }

// A model's program with gradients, and inputs for it.
struct Differentiated {
  layers::Traced traced;
  std::vector<std::string>
      names;  // of the parameters with gradients: all but packed ones, which are what they start as
  std::vector<kernels::ValueId> gradients;
  Memory inputs;

  explicit Differentiated(const layers::Config& model)
      : traced(layers::trace_loss(model, catalog(), 3, 5, true, false, source_of(model), 2)) {
    const Batch batch = random_batch(3, 5, layers::vocabulary(model), 7);
    set("tokens", traced.tokens, batch.tokens.data());
    set("targets", traced.targets, batch.targets.data());
    kernels::Builder builder(catalog(), traced.program);
    std::vector<kernels::Tensor> parameters;
    std::mt19937_64 random(11);
    for (const layers::ParameterInfo& info : traced.parameters) {
      kernels::HostTensor value(info.type);
      if (info.storage) {
        std::vector<float> whole(static_cast<std::size_t>(info.storage->type.elements()));
        info.initialize_range(5, 0, info.storage->type.elements(), whole.data());
        info.storage->quantize(whole, value.data);
        inputs[info.path] = value;
        continue;
      }
      info.initialize(5, value.as<float>());
      // Constant initial values hide errors.
      for (std::int64_t i = 0; i < info.type.elements(); ++i)
        value.as<float>()[i] += std::uniform_real_distribution<float>(-0.3f, 0.3f)(random);
      inputs[info.path] = value;
    }
    const std::int32_t rng_state[] = {7, 3, 0};
    for (kernels::ValueId id : traced.program.inputs) {
      const std::string& name = traced.program.value(id).name;
      if (name == "rng_state") set(name, id, rng_state);
      const auto info = std::find_if(traced.parameters.begin(), traced.parameters.end(),
                                     [&](const layers::ParameterInfo& p) { return p.path == name; });
      if (info == traced.parameters.end() || info->storage) continue;
      names.push_back(name);
      parameters.push_back(builder.tensor(id));
    }
    const Batch source = random_batch(3, 7, layers::vocabulary(model), 8);
    // A whole source, and two with padding.
    const std::int32_t ones[15] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                       real[21] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    for (kernels::ValueId id : traced.rows) {
      const std::string& name = traced.program.value(id).name;
      const std::map<std::string, const float*> numbers{{"answers", kAnswers},
                                                        {"reference_logprobs", kReference},
                                                        {"advantages", kAdvantages},
                                                        {"old_logprobs", kOldLogprobs}};
      if (const auto found = numbers.find(name); found != numbers.end()) {
        kernels::HostTensor value(traced.program.value(id).type);
        std::copy_n(found->second, 15, value.as<float>());
        inputs[name] = value;
        continue;
      }
      set(name, id, name == "segments" ? ones : name == "source" ? source.tokens.data() : real);
    }
    for (kernels::Tensor gradient :
         trainer::differentiate(builder, builder.tensor(traced.loss_sum), parameters)) {
      gradients.push_back(gradient.id);
      builder.output(gradient);
    }
    trainer::remove_dead_calls(traced.program);
    kernels::verify(traced.program, catalog(), "differentiate");
  }

  void set(const std::string& name, kernels::ValueId id, const std::int32_t* data) {
    kernels::HostTensor value(traced.program.value(id).type);
    std::copy_n(data, value.type.elements(), value.as<std::int32_t>());
    inputs[name] = value;
  }

  double loss(const Memory& memory) const {
    return interpret(traced.program, catalog(), memory)[static_cast<std::size_t>(traced.loss_sum)]
        .as<float>()[0];
  }
};

// Along a random direction in all parameters at once, and along one parameter at a time.
inline void check_against_differences(const layers::Config& model) {
  const Differentiated d(model);
  const std::vector<kernels::HostTensor> values = interpret(d.traced.program, catalog(), d.inputs);
  for (std::size_t only = 0; only <= d.gradients.size(); ++only) {
    std::mt19937_64 random(only);
    double slope = 0, norm = 0;
    std::map<std::string, std::vector<double>> direction;
    for (std::size_t i = 0; i < d.gradients.size(); ++i) {
      if (only < d.gradients.size() && i != only) continue;
      const kernels::HostTensor& gradient = values[static_cast<std::size_t>(d.gradients[i])];
      // Partly along the gradient, so that the slope is far from 0.
      for (std::int64_t k = 0; k < gradient.type.elements(); ++k) {
        const double g = gradient.as<float>()[k];
        const double step = g + 0.3 * std::abs(g) * std::normal_distribution<double>()(random);
        direction[d.names[i]].push_back(step);
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
        << (only < d.gradients.size() ? d.names[only] : "all parameters");
  }
}

// The device's kernels give the loss and the norm of the gradient that the references give.
inline void check_device_agrees(const layers::Config& model, const std::string& device = "cpu") {
  const Differentiated d(model);
  const std::vector<kernels::HostTensor> values = interpret(d.traced.program, catalog(), d.inputs);
  double squares = 0;
  for (const kernels::ValueId id : d.gradients) {
    const kernels::HostTensor& gradient = values[static_cast<std::size_t>(id)];
    for (std::int64_t i = 0; i < gradient.type.elements(); ++i)
      squares += std::pow(static_cast<double>(gradient.as<float>()[i]), 2);
  }
  Bench bench(device);
  trainer::ComposeOptions options;
  options.batch = 3;
  options.sequence = 5;
  options.source = source_of(model);
  options.preferences = 2;
  bench.start(trainer::compose_training(model, adamw(), options, catalog(), bench.device->info()));
  for (const auto& [name, tensor] : d.inputs) bench.session->write(name, tensor.data);
  bench.set_rate(0);
  bench.session->run(trainer::Step::train);
  const std::vector<float> metrics = bench.read("metrics");
  const double norm = std::sqrt(squares) / metrics[1];
  EXPECT_NEAR(metrics[2], norm, 1e-4 * norm);
  EXPECT_NEAR(metrics[0], values[static_cast<std::size_t>(d.traced.loss_sum)].as<float>()[0],
              1e-4 * std::abs(metrics[0]));
}

}  // namespace meshloom::tests
