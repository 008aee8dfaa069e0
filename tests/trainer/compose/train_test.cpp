// Whole plans, run on the CPU under the checked device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "kernels/program/print.h"
#include "layers/config/tree.h"
#include "layers/core/initializer.h"
#include "layers/core/parameter.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/memory/memory.h"
#include "trainer/compose/report.h"
#include "trainer/execute/initial_values.h"

namespace meshloom::tests {
namespace {

using ::testing::HasSubstr;
using trainer::ComposeOptions;
using trainer::Plan;

struct Result {
  std::vector<std::vector<float>> metrics;            // by step
  std::map<std::string, std::vector<float>> weights;  // parameters and optimizer state
};

Plan plan_for(const layers::Config& model, const ComposeOptions& options, const hal::DeviceInfo& device) {
  return trainer::compose_training(model, adamw(), options, catalog(), device);
}

// Trains `steps` steps on batches that depend on the step only.
Result train(const layers::Config& model, const ComposeOptions& options, int steps = 3,
             const std::string& device = "cpu") {
  Bench bench(device);
  bench.start(plan_for(model, options, bench.device->info()));
  Result result;
  for (int step = 0; step < steps; ++step) {
    const Batch batch = random_batch(options.batch, options.sequence, layers::vocabulary(model),
                                     100 + static_cast<std::uint64_t>(step));
    bench.set_rate(1e-2f);
    if (options.accumulation == 1) {
      bench.feed(batch);
      bench.session->run(trainer::Step::train);
    } else {
      const std::size_t part = batch.tokens.size() / static_cast<std::size_t>(options.accumulation);
      for (std::size_t i = 0; i < static_cast<std::size_t>(options.accumulation); ++i) {
        const auto cut = [&](const std::vector<std::int32_t>& all) {
          return std::vector<std::int32_t>(all.begin() + static_cast<std::ptrdiff_t>(i * part),
                                           all.begin() + static_cast<std::ptrdiff_t>((i + 1) * part));
        };
        bench.feed({cut(batch.tokens), cut(batch.targets)});
        bench.session->run(trainer::Step::accumulate);
      }
      bench.session->run(trainer::Step::apply);
    }
    result.metrics.push_back(bench.read("metrics"));
  }
  for (const auto& [name, type] : bench.session->plan().persistent_types)
    if (type.dtype == kernels::DType::f32 && name.rfind("logits", 0) != 0)
      result.weights[name] = bench.read(name);
  return result;
}

void expect_near(const Result& a, const Result& b, double tolerance) {
  for (std::size_t s = 0; s < a.metrics.size(); ++s)
    for (std::size_t i = 0; i < a.metrics[s].size(); ++i)
      EXPECT_NEAR(a.metrics[s][i], b.metrics[s][i], tolerance * std::abs(a.metrics[s][i])) << s << " " << i;
  for (const auto& [name, values] : a.weights) {
    if (name.rfind("grad/", 0) == 0 || !b.weights.count(name) || name == "eval/metrics") continue;
    // Softmax does not see a bias of the keys: its gradient is rounding, which Adam turns into steps of
    // either sign.
    if (name.find("k_proj/bias") != std::string::npos) continue;
    const std::vector<float>& others = b.weights.at(name);
    double highest = 0;
    for (float v : values) highest = std::max(highest, std::abs(static_cast<double>(v)));
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], others[i], tolerance * highest + 1e-5) << name << " " << i;
  }
}

// One plan, two sets of parameters on one device: a step of one moves nothing of the other.
TEST(Train, OnePlanServesTwoSetsOfParameters) {
  const layers::CausalLM::Config model = tiny_llama();
  const ComposeOptions options = small_options();
  Bench one("cpu");
  const Plan plan = plan_for(model, options, one.device->info());
  one.start(plan, 1);
  trainer::Session two(*one.device, catalog(), plan);
  trainer::initialize(two, 2);
  const auto parameters_of = [&](trainer::Session& session) {
    std::vector<std::byte> all;
    for (const layers::ParameterInfo& info : plan.parameters) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(info.type.bytes()));
      session.read(info.path, bytes);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  };
  const std::vector<std::byte> first = parameters_of(*one.session), second = parameters_of(two);
  EXPECT_NE(first, second);
  one.set_rate(1e-2f);
  one.feed(random_batch(options.batch, options.sequence, layers::vocabulary(model), 3));
  one.session->run(trainer::Step::train);
  one.session->wait();
  EXPECT_NE(parameters_of(*one.session), first);
  EXPECT_EQ(parameters_of(two), second);
}

TEST(Train, LossFallsAndMetricsAreRight) {
  const layers::CausalLM::Config model = tiny_llama();
  ComposeOptions options = small_options();
  Bench bench("cpu");
  bench.start(plan_for(model, options, bench.device->info()));
  const Batch batch = random_batch(4, 6, 19, 3);
  const auto valid = std::count_if(batch.targets.begin(), batch.targets.end(), [](int t) { return t >= 0; });
  bench.set_rate(3e-2f);
  float first = 0, last = 0;
  for (int step = 0; step < 12; ++step) {
    bench.feed(batch);
    bench.session->run(trainer::Step::train);
    const std::vector<float> metrics = bench.read("metrics");
    ASSERT_EQ(bench.session->plan().metrics.at("metrics").size(), metrics.size());
    EXPECT_EQ(metrics[static_cast<int>(trainer::Metric::token_count)], static_cast<float>(valid));
    EXPECT_EQ(metrics[static_cast<int>(trainer::Metric::applied)], 1.0f);
    EXPECT_EQ(metrics[static_cast<int>(trainer::Metric::step)], static_cast<float>(step + 1));
    EXPECT_GT(metrics[static_cast<int>(trainer::Metric::gradient_norm)], 0.0f);
    last = metrics[0] / metrics[1];
    if (step == 0) first = last;
  }
  EXPECT_NEAR(first, std::log(19.0), 0.5);
  EXPECT_LT(last, 0.7f * first);
  bench.feed(batch);
  bench.session->run(trainer::Step::evaluate);
  const std::vector<float> evaluated = bench.read("eval/metrics");
  EXPECT_LT(evaluated[0] / evaluated[1], last);
}

TEST(Train, SameSeedSameBits) {
  for (const layers::CausalLM::Config& model : {tiny_llama(), tiny_gpt2()}) {
    const Result a = train(model, small_options()), b = train(model, small_options());
    EXPECT_EQ(a.metrics, b.metrics);
    EXPECT_EQ(a.weights, b.weights);
  }
}

TEST(Train, RematerialisationKeepsEveryBit) {
  for (const layers::CausalLM::Config& model : {tiny_llama(), tiny_gpt2()}) {
    ComposeOptions options = small_options();
    const Result saved = train(model, options);
    for (const std::vector<trainer::RematRule>& rules :
         {std::vector<trainer::RematRule>{{".*", trainer::RematPolicy::recompute}},
          std::vector<trainer::RematRule>{{"attention.*", trainer::RematPolicy::save},
                                          {".*", trainer::RematPolicy::recompute}},
          std::vector<trainer::RematRule>{{"feed_forward.*", trainer::RematPolicy::recompute}}}) {
      options.remat = rules;
      const Result again = train(model, options);
      EXPECT_EQ(saved.metrics, again.metrics);
      EXPECT_EQ(saved.weights, again.weights);
    }
  }
}

TEST(Train, RematerialisationTradesMemoryForWork) {
  Bench bench("cpu");
  layers::CausalLM::Config model =
      layers::llama_config({.vocab = 64, .dim = 64, .layers = 8, .heads = 4, .kv_heads = 2, .ffn = 192});
  ComposeOptions options;
  options.batch = 4;
  options.sequence = 128;
  const Plan saved = plan_for(model, options, bench.device->info());
  options.remat = {{".*", trainer::RematPolicy::recompute}};
  const Plan again = plan_for(model, options, bench.device->info());
  EXPECT_LT(again.memory.at("activations") * 2, saved.memory.at("activations"));
  EXPECT_EQ(saved.recompute_flops(trainer::Step::train), 0);
  EXPECT_GT(again.recompute_flops(trainer::Step::train), 0);
  EXPECT_EQ(saved.flops(trainer::Step::train), again.flops(trainer::Step::train));
}

TEST(Train, AccumulationEqualsTheWholeBatch) {
  for (const layers::CausalLM::Config& model : {tiny_llama(), tiny_gpt2()}) {
    ComposeOptions options = small_options();
    const Result whole = train(model, options);
    for (std::int64_t parts : {2, 4}) {
      options.accumulation = parts;
      const Result split = train(model, options);
      // Adam divides by the root of tiny second moments: compare with a tolerance on the step, not an ulp.
      expect_near(whole, split, 2e-3);
      for (const auto& [name, values] : split.weights)
        if (name.rfind("grad/", 0) == 0 || name.rfind("accumulate/", 0) == 0) {
          for (float v : values) ASSERT_EQ(v, 0.0f) << name << " is cleared by the update";
        }
    }
  }
}

TEST(Train, NonFiniteGradientsSkipTheStep) {
  const layers::CausalLM::Config model = tiny_llama();
  Bench bench("cpu");
  bench.start(plan_for(model, small_options(), bench.device->info()));
  const std::string name = "decoder/stack/layer1/feed_forward/down_proj/weight";
  const std::string other = "decoder/stack/layer0/attention/q_proj/weight";
  ASSERT_TRUE(bench.session->plan().persistent.count(name))
      << kernels::print(bench.session->plan().steps.at(trainer::Step::train).program);
  std::vector<float> broken = bench.read(name);
  broken[3] = std::numeric_limits<float>::infinity();
  bench.session->write(name, std::as_bytes(std::span(broken)));
  const std::vector<float> before = bench.read(other);
  bench.set_rate(1e-2f);
  bench.feed(random_batch(4, 6, 19, 3));
  bench.session->run(trainer::Step::train);
  const std::vector<float> metrics = bench.read("metrics");
  EXPECT_EQ(metrics[static_cast<int>(trainer::Metric::applied)], 0.0f);
  EXPECT_EQ(metrics[static_cast<int>(trainer::Metric::step)], 0.0f);
  EXPECT_EQ(bench.read(other), before);
  for (float v : bench.read("optimizer/m/" + other)) EXPECT_EQ(v, 0.0f);
}

TEST(Train, ABatchWithoutTokensSkipsTheStep) {
  Bench bench("cpu");
  bench.start(plan_for(tiny_gpt2(), small_options(), bench.device->info()));
  Batch batch = random_batch(4, 6, 19, 3);
  for (std::int32_t& target : batch.targets) target = -1;
  bench.set_rate(1e-2f);
  bench.feed(batch);
  bench.session->run(trainer::Step::train);
  const std::vector<float> metrics = bench.read("metrics");
  EXPECT_EQ(metrics[static_cast<int>(trainer::Metric::token_count)], 0.0f);
  EXPECT_EQ(metrics[static_cast<int>(trainer::Metric::applied)], 0.0f);
}

TEST(Train, ClippingScalesToTheNorm) {
  // One plain step of a learner whose update is lr * gradient would show it; AdamW's m does: (1 - beta1) g'.
  const layers::CausalLM::Config model = tiny_llama();
  Bench bench("cpu");
  trainer::AdamW::Config learner = adamw();
  learner.clip_norm = 1e-3;
  bench.start(trainer::compose_training(model, learner, small_options(), catalog(), bench.device->info()));
  bench.set_rate(1e-2f);
  bench.feed(random_batch(4, 6, 19, 3));
  bench.session->run(trainer::Step::train);
  double sum = 0;
  for (const auto& [name, type] : bench.session->plan().persistent_types)
    if (name.rfind("optimizer/m/", 0) == 0)
      for (float v : bench.read(name)) sum += static_cast<double>(v) * v;
  EXPECT_NEAR(std::sqrt(sum) / (1 - learner.beta1), 1e-3, 1e-6);
  EXPECT_GT(bench.read("metrics")[static_cast<int>(trainer::Metric::gradient_norm)], 1e-2f)
      << "before clipping";
}

TEST(Train, LogitsComeFromTheTrainedParameters) {
  const layers::CausalLM::Config model = tiny_llama();
  ComposeOptions options = small_options();
  options.logits_batch = 2;
  options.logits_sequence = 5;
  Bench bench("cpu");
  bench.start(plan_for(model, options, bench.device->info()));
  const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  bench.session->write("logits/tokens", std::as_bytes(std::span(tokens)));
  bench.session->run(trainer::Step::logits);
  const std::vector<float> before = bench.read("logits");
  EXPECT_EQ(before.size(), 2u * 5 * 19);
  bench.set_rate(1e-2f);
  bench.feed(random_batch(4, 6, 19, 3));
  bench.session->run(trainer::Step::train);
  bench.session->run(trainer::Step::logits);
  EXPECT_NE(before, bench.read("logits"));

  Bench alone("cpu");
  alone.start(trainer::compose_inference(model, options, catalog(), alone.device->info()));
  alone.session->write("logits/tokens", std::as_bytes(std::span(tokens)));
  alone.session->run(trainer::Step::logits);
  EXPECT_EQ(before, alone.read("logits"));
}

// --- memory ------------------------------------------------------------------------------------------------

TEST(Memory, PlannedIsAllocated) {
  for (const char* device : {"cpu", "null"})
    for (std::int64_t accumulation : {1, 2}) {
      ComposeOptions options = small_options();
      options.accumulation = accumulation;
      options.logits_batch = 1;
      options.logits_sequence = 3;
      std::unique_ptr<hal::Device> opened = build().registry.open(device);
      const Plan plan = plan_for(tiny_llama(), options, opened->info());
      std::int64_t classes = 0;
      for (const auto& [name, bytes] : plan.memory) {
        classes += bytes;
        EXPECT_GE(plan.memory_max.at(name), bytes) << name;
      }
      EXPECT_EQ(classes, plan.peak_bytes);
      EXPECT_GT(plan.memory_max.at("gradients"), 0);
      trainer::Session session(*opened, catalog(), plan);
      EXPECT_EQ(opened->allocated_bytes(), plan.peak_bytes);
      EXPECT_EQ(opened->peak_bytes(), plan.peak_bytes);
      trainer::initialize(session, 1);
      if (std::string(device) == "cpu") {
        session.run(accumulation == 1 ? trainer::Step::train : trainer::Step::accumulate);
        session.wait();
      }
      EXPECT_EQ(opened->peak_bytes(), plan.peak_bytes);
    }
}

TEST(Memory, SmallBlocksAreKept) {
  std::unique_ptr<hal::Device> opened = build().registry.open("null");
  hal::DeviceInfo info = opened->info();
  info.limits.max_allocation_bytes = 8 << 10;
  const Plan plan = plan_for(tiny_llama(), small_options(), info);
  EXPECT_GT(plan.blocks.size(), 8u);
  for (const trainer::Block& block : plan.blocks) EXPECT_LE(block.bytes, 8 << 10);
  info.limits.max_allocation_bytes = 1 << 10;
  EXPECT_THROW(plan_for(tiny_llama(), small_options(), info), hal::OutOfMemory);
}

TEST(Memory, CheckerFindsOverlap) {
  std::unique_ptr<hal::Device> opened = build().registry.open("null");
  const Plan plan = plan_for(tiny_llama(), small_options(), opened->info());
  EXPECT_NO_THROW(trainer::check_memory(plan, catalog()));
  // Each transient value that lives across calls is moved onto another one: some of these must overlap.
  int found = 0, moved = 0;
  const trainer::PlannedProgram& train = plan.steps.at(trainer::Step::train);
  for (std::size_t v = 0; v < train.placements.size(); v += 7) {
    const int block = train.placements[v].block;
    if (block < 0 || plan.blocks[static_cast<std::size_t>(block)].persistent) continue;
    Plan broken = plan;
    broken.steps.programs.at(trainer::Step::train).placements[v].offset = 0;
    if (train.placements[v].offset == 0) continue;
    ++moved;
    try {
      trainer::check_memory(broken, catalog());
    } catch (const Error&) {
      ++found;
    }
  }
  EXPECT_GT(found, moved / 2) << moved;
  Plan broken = plan;
  broken.persistent.begin()->second.offset = std::next(broken.persistent.begin())->second.offset;
  broken.persistent.begin()->second.block = std::next(broken.persistent.begin())->second.block;
  EXPECT_THROW(trainer::check_memory(broken, catalog()), Error);
}

TEST(Memory, RunningOutIsSaidInWords) {
  std::unique_ptr<hal::Device> opened = build().registry.open("null");
  hal::DeviceInfo info = opened->info();
  info.profile.memory_bytes = 64 << 10;
  try {
    plan_for(tiny_llama(), small_options(), info);
    FAIL();
  } catch (const hal::OutOfMemory& error) {
    const std::string text = error.what();
    for (const char* part : {"64.00 KiB", "parameters", "optimizer", "activations", "largest: '",
                             "smaller batch (now 4)", "rematerialization"})
      EXPECT_THAT(text, HasSubstr(part));
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  ComposeOptions options = small_options();
  options.enforce_memory = false;
  EXPECT_GT(trainer::compose_training(tiny_llama(), adamw(), options, catalog(), info).peak_bytes, 64 << 10);
}

// --- options -----------------------------------------------------------------------------------------------

TEST(Compose, RefusesBadOptions) {
  std::unique_ptr<hal::Device> opened = build().registry.open("null");
  const auto refusal = [&](auto change) {
    ComposeOptions options = small_options();
    change(options);
    try {
      plan_for(tiny_llama(), options, opened->info());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal([](ComposeOptions& o) { o.accumulation = 3; }), HasSubstr("must divide the batch"));
  EXPECT_THAT(refusal([](ComposeOptions& o) { o.batch = 0; }), HasSubstr("option batch"));
  EXPECT_THAT(refusal([](ComposeOptions& o) { o.logits_batch = 1; }), HasSubstr("both"));
  EXPECT_THAT(refusal([](ComposeOptions& o) {
                o.mesh = {{"data", 8}};
              }),
              HasSubstr("a multiple of its 8 ranks of data"));
  EXPECT_THAT(refusal([](ComposeOptions& o) {
                o.kernels = {{"matmul", "nowhere/.*", "reference"}};
              }),
              HasSubstr("must match at least one call"));
  EXPECT_THAT(refusal([](ComposeOptions& o) {
                o.kernels = {{"matmul", ".*", "no_such_variant"}};
              }),
              HasSubstr("must be one of"));
}

TEST(Compose, ARuleChangesTheVariantAndNothingElse) {
  std::unique_ptr<hal::Device> opened = build().registry.open("cpu");
  ComposeOptions options = small_options();
  const Plan before = plan_for(tiny_llama(), options, opened->info());
  options.kernels = {{"matmul", "**/attention/q_proj", "reference"}};
  const Plan after = plan_for(tiny_llama(), options, opened->info());
  int changed = 0;
  for (const auto& [name, planned] : before.steps.programs) {
    const kernels::Program& other = after.steps.at(name).program;
    ASSERT_EQ(planned.program.calls.size(), other.calls.size());
    for (std::size_t i = 0; i < other.calls.size(); ++i) {
      const kernels::Call &a = planned.program.calls[i], &b = other.calls[i];
      EXPECT_EQ(a.op, b.op);
      EXPECT_EQ(a.inputs, b.inputs);
      if (a.choice->variant == b.choice->variant) continue;
      ++changed;
      EXPECT_EQ(b.op, "matmul");
      EXPECT_THAT(b.path, HasSubstr("attention/q_proj"));
    }
  }
  EXPECT_EQ(changed == 0, !after.notes.empty()) << "a rule that changes nothing is said";
}

TEST(Compose, EveryPassCanBePrinted) {
  std::unique_ptr<hal::Device> opened = build().registry.open("null");
  trainer::PassTrace trace;
  trainer::compose_training(tiny_llama(), adamw(), small_options(), catalog(), opened->info(), &trace);
  std::set<std::string> passes;
  for (const trainer::PassTrace::Entry& entry : trace.entries)
    if (entry.program == "train") passes.insert(entry.pass);
  EXPECT_EQ(passes, (std::set<std::string>{"trace", "differentiate", "update", "partition", "fuse", "remat",
                                           "select"}));
}

TEST(Compose, OneStepTouchesTheHostForNothingButItsInputs) {
  std::unique_ptr<hal::Device> opened = build().registry.open("null");
  const Plan plan = plan_for(tiny_llama(), small_options(), opened->info());
  std::set<std::string> inputs;
  for (kernels::ValueId id : plan.steps.at(trainer::Step::train).program.inputs) {
    const kernels::Value& value = plan.steps.at(trainer::Step::train).program.value(id);
    if (value.role == kernels::Role::input) inputs.insert(value.name);
  }
  EXPECT_EQ(inputs, (std::set<std::string>{"tokens", "targets", "lr"}));
}

TEST(Session, InitialValuesDoNotDependOnTheNumberOfThreads) {
  layers::Parameter parameter;
  parameter.path = "somewhere/weight";
  parameter.type = {kernels::DType::f32, {1021, 1031}};
  parameter.init = std::make_shared<layers::Normal>();
  layers::ParameterInfo info;
  info.path = parameter.path;
  info.type = parameter.type;
  info.initialize_range = [&](std::uint64_t seed, std::int64_t begin, std::int64_t count, float* into) {
    parameter.initialize(seed, begin, count, into);
  };
  std::vector<float> whole(static_cast<std::size_t>(parameter.type.elements())), split(whole.size());
  parameter.initialize(3, whole.data());
  for (int threads : {0, 1, 2, 7}) {
    std::fill(split.begin(), split.end(), 0.0f);
    trainer::initial_values(info, 3, threads, split);
    EXPECT_EQ(split, whole) << threads;
  }
  layers::ParameterInfo broken = info;
  broken.initialize_range = [](std::uint64_t, std::int64_t, std::int64_t, float*) {
    throw Error("here", "must work");
  };
  EXPECT_THROW(trainer::initial_values(broken, 3, 4, split), Error);
}

TEST(Session, RefusesWrongNamesAndSizes) {
  Bench bench("cpu");
  bench.start(plan_for(tiny_llama(), small_options(), bench.device->info()));
  std::vector<std::byte> four(4);
  EXPECT_THROW(bench.session->write("token", four), Error);
  EXPECT_THROW(bench.session->write("tokens", four), Error);
  EXPECT_THROW(bench.session->run(trainer::Step::apply), Error);
}

// --- learner -----------------------------------------------------------------------------------------------

TEST(Learner, Schedules) {
  trainer::WarmupCosine::Config schedule;
  schedule.warmup_steps = 10;
  schedule.total_steps = 110;
  schedule.final_fraction = 0.1;
  EXPECT_DOUBLE_EQ(schedule.factor(1), 0.1);
  EXPECT_DOUBLE_EQ(schedule.factor(10), 1.0);
  EXPECT_NEAR(schedule.factor(60), 0.55, 1e-12);
  EXPECT_NEAR(schedule.factor(110), 0.1, 1e-12);
  EXPECT_NEAR(schedule.factor(100000), 0.1, 1e-12);
  trainer::AdamW::Config config = adamw(2e-3);
  config.schedule = schedule;
  EXPECT_DOUBLE_EQ(config.learning_rate(1), 2e-4);
}

TEST(Learner, TextRoundTrip) {
  layers::ClassTable classes;
  trainer::add_learner_classes(classes);
  trainer::AdamW::Config config = adamw(3e-4);
  trainer::WarmupCosine::Config schedule;
  schedule.total_steps = 1000;
  config.schedule = schedule;
  const std::string text = layers::print(config);
  EXPECT_EQ(text, layers::print(*layers::parse(text, classes, "learner")));
  EXPECT_THAT(text, HasSubstr("WarmupCosine"));
}

TEST(Learner, RefusesNonsense) {
  trainer::AdamW::Config config = adamw();
  EXPECT_NO_THROW(config.check());
  config.beta2 = 1.0;
  EXPECT_THROW(config.check(), Error);
  config = adamw(-1);
  EXPECT_THROW(config.check(), Error);
  trainer::WarmupCosine::Config schedule;
  EXPECT_THROW(schedule.check(), Error);  // total_steps is required
}

}  // namespace
}  // namespace meshloom::tests
