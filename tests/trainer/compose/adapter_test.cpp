// Low-rank adapters: what they compute, what is trained, and the parameters after merging.
#include "layers/adapters/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/gradient_check.h"
#include "tests/trainer/compose/support.h"

namespace meshloom::tests {
namespace {

using ::testing::HasSubstr;

layers::ClassTable classes() {
  layers::ClassTable table;
  layers::add_layer_classes(table);
  trainer::add_learner_classes(table);
  return table;
}

// Every Linear of `model` in `adapter`.
layers::CausalLM::Config adapted(layers::CausalLM::Config model, const std::string& adapter,
                                 const std::string& where = "**") {
  const auto wrapper = layers::parse(adapter, classes(), "adapter");
  layers::wrap(model, {.where = where, .of_class = "Linear"}, *wrapper, "base", classes());
  return model;
}

trainer::AdamW::Config adapters_only() {
  trainer::AdamW::Config learner = adamw();
  learner.train = "adapters";
  return learner;
}

// Logits of a model whose parameters are `values` by path.
std::vector<float> logits(const layers::Config& model,
                          const std::map<std::string, std::vector<float>>& values) {
  const layers::Traced t = layers::trace_logits(model, catalog(), 2, 5);
  Memory memory;
  const auto put = [&](const std::string& name, kernels::ValueId id, const void* data) {
    kernels::HostTensor tensor(t.program.value(id).type);
    std::memcpy(tensor.data.data(), data, tensor.data.size());
    memory[name] = tensor;
  };
  put("tokens", t.tokens, random_batch(2, 5, 19, 1).tokens.data());
  for (kernels::ValueId id : t.program.inputs) {
    const std::string& name = t.program.value(id).name;
    if (id != t.tokens) put(name, id, values.at(name).data());
  }
  const kernels::HostTensor out = interpret(t.program, catalog(), memory)[static_cast<std::size_t>(t.logits)];
  return {out.as<float>(), out.as<float>() + out.type.elements()};
}

std::map<std::string, std::vector<float>> start(const layers::Config& model) {
  std::map<std::string, std::vector<float>> values;
  for (const layers::ParameterInfo& info : layers::trace_logits(model, catalog(), 1, 4).parameters) {
    values[info.path].resize(static_cast<std::size_t>(info.type.elements()));
    info.initialize(3, values[info.path].data());
  }
  return values;
}

std::vector<layers::CausalLM::Config> models() {
  return {tiny_llama(), tiny_gpt2(), of_experts(tiny_llama())};
}

class Adapters : public testing::TestWithParam<std::string> {};

TEST_P(Adapters, TheModelStartsAsItWas) {
  for (const layers::CausalLM::Config& model : models()) {
    const layers::CausalLM::Config with = adapted(model, GetParam() + "{rank=3}");
    const auto before = start(model), after = start(with);
    for (const auto& [path, values] : before) EXPECT_EQ(after.at(path), values) << path;
    EXPECT_GT(after.size(), before.size());
    const std::vector<float> a = logits(model, before), b = logits(with, after);
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5);
  }
}

TEST_P(Adapters, GradientsAgainstDifferences) {
  check_against_differences(adapted(tiny_llama(), GetParam() + "{rank=2 alpha=3}", "**.{q_proj,down_proj}"));
  check_against_differences(adapted(tiny_gpt2(), GetParam() + "{rank=2 alpha=3}", "**.{o_proj,up_proj}"));
}

TEST_P(Adapters, MergingGivesTheSameModel) {
  for (const layers::CausalLM::Config& model : models()) {
    const layers::CausalLM::Config with = adapted(model, GetParam() + "{rank=3 alpha=6}");
    auto values = start(with);
    for (auto& [path, v] : values)
      layers::normal(layers::fold_in_path(layers::Key{9}, path), 0, static_cast<std::int64_t>(v.size()),
                     v.data());
    for (auto& [path, v] : values)
      for (float& x : v)
        x = path.ends_with("norm/weight") || path.ends_with("magnitude") ? 1 + 0.2f * x : 0.3f * x;
    layers::MergedModel merged = layers::merge_adapters(with);
    EXPECT_EQ(layers::diff(model, *merged.model), "");
    auto merged_values = values;
    for (const layers::Merge& merge : merged.merges) {
      std::vector<std::vector<float>> sources;
      for (const std::string& source : merge.sources) sources.push_back(values.at(source));
      merged_values[merge.target] = merge.merge(sources);
    }
    const std::vector<float> a = logits(with, values), b = logits(*merged.model, merged_values),
                             c = logits(model, values);
    double highest = 0, off = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], 1e-4);
      highest = std::max(highest, std::abs(static_cast<double>(a[i])));
      off = std::max(off, std::abs(static_cast<double>(a[i]) - static_cast<double>(c[i])));
    }
    EXPECT_GT(off, 0.01 * highest);  // of no use if the adapters did nothing
  }
}

TEST_P(Adapters, OnlyTheyLearnAndHoldOptimizerState) {
  const layers::CausalLM::Config model = adapted(tiny_llama(), GetParam() + "{rank=3}", "**.{q,v}_proj");
  for (const std::int64_t accumulation : {1, 2}) {
    trainer::ComposeOptions options = small_options();
    options.accumulation = accumulation;
    Bench bench("cpu");
    bench.start(trainer::compose_training(model, adapters_only(), options, catalog(), bench.device->info()));
    std::map<std::string, std::vector<float>> before;
    std::int64_t learning = 0;
    for (const layers::ParameterInfo& info : bench.session->plan().parameters) {
      before[info.path] = bench.read(info.path);
      learning += info.frozen ? 0 : info.type.elements();
      EXPECT_EQ(info.frozen, !info.adapter) << info.path;
      for (const char* slot : {"optimizer/m/", "optimizer/v/"})
        EXPECT_EQ(bench.session->plan().persistent.count(slot + info.path), info.adapter ? 1u : 0u)
            << info.path;
      if (!info.adapter) {
        EXPECT_EQ(bench.session->plan().persistent.count("grad/" + info.path), 0u);
      }
    }
    EXPECT_EQ(bench.session->plan().trainable_parameter_count(), learning);
    bench.set_rate(1e-2f);
    float first = 0, last = 0;
    for (int step = 0; step < 20; ++step) {
      for (std::int64_t i = 0; i < accumulation; ++i) {
        bench.feed(random_batch(4 / accumulation, 6, 19, 3));
        bench.session->run(accumulation == 1 ? trainer::Step::train : trainer::Step::accumulate);
      }
      if (accumulation > 1) bench.session->run(trainer::Step::apply);
      last = bench.read("metrics")[0];
      if (step == 0) first = last;
    }
    EXPECT_LT(last, first);
    for (const layers::ParameterInfo& info : bench.session->plan().parameters)
      EXPECT_EQ(bench.read(info.path) == before.at(info.path), !info.adapter) << info.path;
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, Adapters, testing::Values("Lora", "Dora"),
                         [](const auto& info) { return info.param; });

// Each has an A and a B of its own.
TEST_P(Adapters, OfExpertsLearnOnEveryDevice) {
  const std::string adapter = GetParam() + "{rank=2 alpha=3}", where = "**.feed_forward.{up,down}_proj";
  const layers::CausalLM::Config model = adapted(of_experts(tiny_llama()), adapter, where);
  check_against_differences(model);
  check_against_differences(adapted(of_experts(tiny_gpt2()), adapter, where));  // with biases
  std::vector<float> losses;
  for (const std::string& device : computing_devices()) {
    Bench bench(device);
    bench.start(
        trainer::compose_training(model, adapters_only(), small_options(), catalog(), bench.device->info()));
    bench.set_rate(1e-2f);
    for (int step = 0; step < 10; ++step) {
      bench.feed(random_batch(4, 6, 19, 3));
      bench.session->run(trainer::Step::train);
      if (step == 0) losses.push_back(bench.read("metrics")[0]);
    }
    losses.push_back(bench.read("metrics")[0]);
    EXPECT_LT(losses.back(), losses[losses.size() - 2]);
    EXPECT_NEAR(losses.back(), losses[1], 1e-4 * losses[1]) << device;
  }
  int found = 0;
  for (const layers::ParameterInfo& info : layers::trace_logits(model, catalog(), 1, 4).parameters)
    if (info.path.ends_with("lora_a") || info.path.ends_with("lora_b")) {
      ++found;
      EXPECT_NE(info.path.find("/experts/"), std::string::npos) << info.path;
      EXPECT_EQ(info.type.rank(), 3) << info.path;
      EXPECT_EQ(info.type.dim(0), 3) << info.path;
      EXPECT_EQ(info.axes[0], "expert") << info.path;
    }
  EXPECT_EQ(found, 12);  // in three layers
}

TEST(AdapterErrors, AreSaid) {
  const auto trace = [](const layers::Config& model) { layers::trace_logits(model, catalog(), 1, 4); };
  EXPECT_THAT(message_of([&] { trace(adapted(tiny_llama(), "Lora{rank=99}")); }),
              HasSubstr("rank must be between 1 and"));
  EXPECT_THAT(message_of([&] { trace(adapted(tiny_llama(), "Lora{alpha=0}")); }),
              HasSubstr("Lora.alpha must be above 0"));
  EXPECT_THAT(message_of([&] { trace(adapted(tiny_llama(), "Lora{base=Lora{}}", "**.q_proj")); }),
              HasSubstr("no error"));
  layers::CausalLM::Config twice = adapted(tiny_llama(), "Lora{rank=2}", "**.q_proj");
  twice = adapted(twice, "Dora{rank=2}", "**.q_proj.base");  // inside another: two lora_a in one place
  EXPECT_THAT(message_of([&] { trace(twice); }), HasSubstr("one declaration"));
  layers::CausalLM::Config normed = tiny_llama();
  layers::wrap(normed, {.where = "**.feed_forward"}, *layers::parse("Dora{rank=2}", classes(), "dora"),
               "base", classes());
  EXPECT_THAT(message_of([&] { trace(normed); }), HasSubstr("must have a weight"));
}

// --- parameter groups ---------------------------------------------------------------------------------------

trainer::Plan planned(const trainer::Learner::Config& learner) {
  const auto device = build().registry.open("null");
  return trainer::compose_training(tiny_llama(), learner, small_options(), catalog(), device->info());
}

trainer::AdamW::Config with_groups(const std::string& groups) {
  trainer::AdamW::Config learner = adamw();
  layers::set(learner, "parameter_groups", groups, classes());
  return learner;
}

TEST(ParameterGroups, FreezeDecayAndRate) {
  const trainer::Plan plan = planned(
      with_groups("[ParameterGroup{where=\"**.layer*.**\" except=\"**.layer2.**\" freeze=true}, "
                  "ParameterGroup{where=\"**.embedding.*\" weight_decay_factor=0 "
                  "learning_rate_factor=0.1}, ParameterGroup{where=\"**.layer2.**.{q,k}_proj.weight\" "
                  "learning_rate_factor=2}]"));
  for (const layers::ParameterInfo& info : plan.parameters) {
    const bool frozen =
        info.path.find("layer0") != std::string::npos || info.path.find("layer1") != std::string::npos;
    EXPECT_EQ(info.frozen, frozen) << info.path;
    EXPECT_EQ(plan.persistent.count("optimizer/m/" + info.path), frozen ? 0u : 1u);
    if (info.path.find("embedding") != std::string::npos) {
      EXPECT_EQ(info.decay, 0);
      EXPECT_EQ(info.learning_rate, 0.1);
    }
  }
  const trainer::Plan all = planned(adamw());
  EXPECT_LT(plan.memory.at("optimizer"), all.memory.at("optimizer"));
  EXPECT_LT(plan.flops(trainer::Step::train), all.flops(trainer::Step::train));
}

TEST(ParameterGroups, MustMatchAndLeaveSomething) {
  EXPECT_THAT(message_of([] { planned(with_groups("[ParameterGroup{where=\"**.nothing\" freeze=true}]")); }),
              HasSubstr("learner.parameter_groups[0]: must match at least one parameter"));
  EXPECT_THAT(message_of([] { planned(with_groups("[ParameterGroup{freeze=true}]")); }),
              HasSubstr("at least one parameter must be trainable"));
  EXPECT_THAT(message_of([] { planned(with_groups("[ParameterGroup{where=\"**\"}]")); }),
              HasSubstr("none of them"));
  EXPECT_THAT(message_of([] { planned(adapters_only()); }), HasSubstr("no trainable adapter"));
}

TEST(ParameterGroups, TheRateOfAParameterIsMultiplied) {
  const auto moved = [](const std::string& groups) {
    trainer::AdamW::Config learner = with_groups(groups);
    learner.weight_decay = 0;
    Bench bench("cpu");
    bench.start(
        trainer::compose_training(tiny_llama(), learner, small_options(), catalog(), bench.device->info()));
    const std::string path = "decoder/stack/layer1/attention/q_proj/weight";
    const std::vector<float> before = bench.read(path);
    bench.set_rate(1e-3f);
    bench.feed(random_batch(4, 6, 19, 3));
    bench.session->run(trainer::Step::train);
    std::vector<float> after = bench.read(path);
    for (std::size_t i = 0; i < after.size(); ++i) after[i] -= before[i];
    return after;
  };
  const std::vector<float> plain = moved("[]");
  const std::vector<float> half = moved("[ParameterGroup{where=\"**.layer1.**\" learning_rate_factor=0.5}]");
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(half[i], 0.5f * plain[i], 1e-7f);
}

}  // namespace
}  // namespace meshloom::tests
