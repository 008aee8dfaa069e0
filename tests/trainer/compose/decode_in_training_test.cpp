// Programs beside caches in a plan that trains: over the very parameters that it updates, of which no bit changes by them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "layers/config/tree.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/memory/memory.h"

namespace meshloom::tests {
namespace {

using trainer::ComposeOptions;
using trainer::Plan;
using trainer::Step;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kTokens = 4, kPages = 3, kPageSize = 4;
constexpr int kSteps = 4;

ComposeOptions with_decode(ComposeOptions options) {
  options.decode = {.tokens = {1, kTokens}, .length = kPages * kPageSize, .page_size = kPageSize};
  return options;
}

Plan plan_for(const layers::Config& model, const ComposeOptions& options, const hal::DeviceInfo& device) {
  return trainer::compose_training(model, adamw(), options, catalog(), device);
}

bool is_of_decode(const std::string& name, const Plan& plan) {
  if (name.starts_with("decode/")) return true;
  for (const auto& [key, planned] : plan.steps.programs)
    for (const kernels::ValueId id : planned.program.inputs)
      if (const kernels::Value& value = planned.program.value(id); value.name == name)
        return value.role == kernels::Role::cache;
  return false;
}

// The first tokens of a text, as one sequence.
std::vector<float> logits_of(Bench& bench, const std::vector<std::int32_t>& text) {
  const auto write = [&](const char* name, const std::vector<std::int32_t>& ids) {
    bench.session->write("decode/4/" + std::string(name), std::as_bytes(std::span(ids)));
  };
  write("tokens", {text.begin(), text.begin() + kTokens});
  write("positions", {0, 1, 2, 3});
  write("segments", {1, 1, 1, 1});
  write("slots", {8, 9, 10, 11});
  write("page_table", {2, 0, 1});
  write("query_starts", {0, kTokens});
  write("lengths", {kTokens});
  write("sequence_ids", {0});
  write("rows", {kTokens - 1});
  bench.session->run({Step::decode, kTokens});
  return bench.read("decode/4/logits");
}

struct Trained {
  std::vector<std::vector<float>> metrics, logits;  // by step
  std::map<std::string, Bytes> kept;
};

Trained train(const layers::Config& model, const ComposeOptions& options, const std::string& device) {
  Bench bench(device);
  bench.start(plan_for(model, options, bench.device->info()));
  const Plan& plan = bench.session->plan();
  Trained trained;
  const std::vector<std::int32_t> text = random_batch(1, kTokens, layers::vocabulary(model), 9).tokens;
  for (int step = 0; step < kSteps; ++step) {
    const auto seed = 100 + static_cast<std::uint64_t>(step);
    bench.set_rate(1e-2f);
    for (std::int64_t part = 0; part < options.accumulation; ++part) {
      bench.feed(random_batch(options.rows(), options.sequence, layers::vocabulary(model),
                              seed + 1000 * static_cast<std::uint64_t>(part)));
      bench.session->run(options.accumulation > 1 ? Step::accumulate : Step::train);
    }
    if (options.accumulation > 1) bench.session->run(Step::apply);
    trained.metrics.push_back(bench.read("metrics"));
    if (!options.decode.tokens.empty()) trained.logits.push_back(logits_of(bench, text));
  }
  for (const auto& [name, type] : plan.persistent_types) {
    if (is_of_decode(name, plan)) continue;
    Bytes bytes(static_cast<std::size_t>(type.bytes()));
    bench.session->read(name, bytes);
    trained.kept[name] = std::move(bytes);
  }
  return trained;
}

struct Case {
  const char* name;
  bool everywhere;  // not on the CPU alone
  layers::CausalLM::Config model;
  ComposeOptions options;
};

std::vector<Case> cases() {
  const auto options = [](const auto& edit) {
    ComposeOptions made = small_options();
    edit(made);
    return made;
  };
  return {{"f32", true, tiny_llama(), small_options()},
          {"experts", false, of_experts(tiny_llama()), small_options()},
          {"micro_batches", false, tiny_gpt2(), options([](ComposeOptions& o) { o.accumulation = 2; })},
          {"bf16", false, tiny_llama(), options([](ComposeOptions& o) { o.dtype = kernels::DType::bf16; })},
          {"f16", false, tiny_llama(), options([](ComposeOptions& o) { o.dtype = kernels::DType::f16; })},
          {"parameters_in_bf16", true, tiny_llama(),
           options([](ComposeOptions& o) { o.dtype = o.param_dtype = kernels::DType::bf16; })}};
}

std::vector<Case> cases_on(const std::string& device) {
  std::vector<Case> all = cases();
  if (device != "cpu") std::erase_if(all, [](const Case& each) { return !each.everywhere; });
  return all;
}

TEST(DecodeInTraining, ChangesNoBitOfTraining) {
  for (const std::string& device : computing_devices())
    for (const Case& each : cases_on(device)) {
      SCOPED_TRACE(device + " " + each.name);
      const Trained with = train(each.model, with_decode(each.options), device),
                    without = train(each.model, each.options, device);
      EXPECT_EQ(with.metrics, without.metrics);
      EXPECT_EQ(with.kept.size(), without.kept.size());
      EXPECT_TRUE(with.kept == without.kept);
      // They read what each step has made of the parameters.
      for (std::size_t step = 1; step < with.logits.size(); ++step)
        EXPECT_NE(with.logits[step], with.logits[step - 1]);
    }
}

// The parameters are written into a plan for inference as training has left them.
TEST(DecodeInTraining, GivesTheLogitsOfAPlanForInference) {
  for (const std::string& device : computing_devices()) {
    const layers::CausalLM::Config model = tiny_llama();
    ComposeOptions options = with_decode(small_options());
    options.decode.row_exact = device.starts_with("cpu");
    Bench training(device), inference(device);
    training.start(plan_for(model, options, training.device->info()));
    inference.start(trainer::compose_inference(model, options, catalog(), inference.device->info()));
    training.set_rate(1e-2f);
    training.feed(random_batch(options.batch, options.sequence, layers::vocabulary(model), 1));
    training.session->run(Step::train);
    for (const layers::ParameterInfo& info : training.session->plan().parameters) {
      const std::vector<float> values = training.read(info.path);
      inference.session->write(info.path, std::as_bytes(std::span(values)));
    }
    const std::vector<std::int32_t> text = random_batch(1, kTokens, layers::vocabulary(model), 9).tokens;
    EXPECT_EQ(logits_of(training, text), logits_of(inference, text)) << device;
  }
}

TEST(DecodeInTraining, TakesCachesAndNoSecondSetOfParameters) {
  for (const std::string& device : computing_devices())
    for (const Case& each : cases_on(device)) {
      SCOPED_TRACE(device + " " + each.name);
      Bench bench(device);
      const Plan without = plan_for(each.model, each.options, bench.device->info());
      bench.start(plan_for(each.model, with_decode(each.options), bench.device->info()));
      const Plan& with = bench.session->plan();
      EXPECT_EQ(bench.device->peak_bytes(), with.peak_bytes) << "planned is allocated";
      for (const char* kind : {"parameters", "optimizer", "gradients", "state"})
        EXPECT_EQ(with.memory_max.at(kind), without.memory_max.at(kind)) << kind;
      EXPECT_FALSE(without.memory.contains("cache"));
      std::int64_t cached = 0, more = 0;
      for (const auto& [name, type] : with.persistent_types)
        if (!without.persistent_types.contains(name)) {
          (name.starts_with("decode/") ? more : cached) += type.bytes();
          EXPECT_TRUE(is_of_decode(name, with)) << name;
        }
      EXPECT_EQ(cached, with.cache_bytes.page * kPages);
      EXPECT_GE(with.memory.at("cache"), cached);
      // The blocks of what does not outlive a program are those of training.
      std::int64_t before = 0, after = 0;
      for (const trainer::Block& block : without.blocks)
        if (!block.persistent) before += block.bytes;
      for (const trainer::Block& block : with.blocks)
        if (!block.persistent) after += block.bytes;
      EXPECT_EQ(after, before);
      trainer::check_memory(with, catalog());
    }
}

// A rule of a recipe names a kernel for the calls of training.
TEST(DecodeInTraining, TakesNoRuleOfTraining) {
  ComposeOptions options = with_decode(small_options());
  options.kernels = {{.op = "matmul", .variant = "reference"}};
  const std::unique_ptr<hal::Device> device = build().registry.open("cpu");
  const Plan plan = plan_for(tiny_llama(), options, device->info());
  int ruled = 0, free = 0;
  for (const auto& [key, planned] : plan.steps.programs)
    for (const kernels::Call& call : planned.program.calls) {
      if (call.op != "matmul") continue;
      const bool reference = call.choice->variant->name == "reference";
      EXPECT_EQ(reference, key.step != Step::decode) << planned.program.name;
      ++(reference ? ruled : free);
    }
  EXPECT_GT(ruled, 0);
  EXPECT_GT(free, 0);
}

}  // namespace
}  // namespace meshloom::tests
