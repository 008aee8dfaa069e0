// Whole runs on the CPU with very short samples: the reports are tested, not the measurements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "bench/core/recipe.h"
#include "bench/core/runner.h"
#include "bench/core/train_step.h"
#include "bench/measure/check.h"
#include "bench/measure/measure.h"
#include "bench/measure/subject.h"
#include "bench/peers/peer.h"
#include "hal/error.h"
#include "kernels/core/rng.h"
#include "tests/bench/planted.h"
#include "tests/trainer/run/binary.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"

namespace meshloom::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// The reference, and then one element off: what a kernel with a wrong tail does.
void encode_planted(const kernels::EncodeArgs& args) {
  const kernels::Contract& contract = *args.choice.variant->contract;
  std::vector<hal::Binding> bindings(args.inputs.begin(), args.inputs.end());
  bindings.insert(bindings.end(), args.outputs.begin(), args.outputs.end());
  const std::vector<kernels::TensorType> in = args.call.inputs, out = args.call.outputs;
  const kernels::Attrs attrs = args.call.attrs;
  args.commands.host_call(
      [&contract, in, out, attrs](std::span<const hal::HostRange> ranges) {
        std::vector<kernels::ConstTensorView> inputs;
        for (std::size_t i = 0; i < in.size(); ++i) inputs.push_back({in[i], ranges[i].data});
        const std::vector<kernels::TensorView> outputs{{out[0], ranges[in.size()].data}};
        contract.reference({contract.name, in, out, attrs}, inputs, outputs);
        outputs[0].as<float>()[out[0].elements() - 1] += 0.5f;
      },
      bindings, args.label);
}

class Bench : public ::testing::Test {
 protected:
  Bench() {
    kernels::add_contracts(catalog);
    register_backends(registry, catalog);
    plant(catalog, "planted", encode_planted);
    plant_bad(catalog);
    device = registry.open("cpu");
  }

  Report run(const std::string& op, const std::string& shapes, RunOptions options) {
    options.seconds = 1e-4;
    Runner runner(*device, registry, catalog, options);
    Report report;
    runner.run(parse_shapes(catalog, op, shapes, hal::DType::f32), report);
    return report;
  }

  kernels::Catalog catalog;
  hal::Registry registry;
  std::unique_ptr<hal::Device> device;
};

TEST_F(Bench, MeasuresTheSelectedVariantAndChecksIt) {
  const Report report = run("matmul", "33x65x17;64x64x64:tb", {});
  ASSERT_THAT(report.rows, SizeIs(2));
  for (const Row& row : report.rows) {
    EXPECT_EQ(row.check, "ok") << row.problem;
    EXPECT_TRUE(row.selected);
    EXPECT_GT(row.seconds, 0);
    EXPECT_GT(row.peak_fraction, 0);
    EXPECT_FALSE(row.bound.empty());
    EXPECT_GE(row.samples, 1);
  }
}

TEST_F(Bench, TellsWrongResults) {
  RunOptions options;
  options.variants = {"planted", "idle", "throwing", "naive"};
  const Report report = run("matmul", "33x65x17", options);
  ASSERT_THAT(report.rows, SizeIs(4));
  for (const Row& row : report.rows) {
    if (row.variant == "naive") {
      EXPECT_EQ(row.check, "ok") << row.problem;
    }
    if (row.variant == "planted") {
      EXPECT_EQ(row.check, "wrong");
      EXPECT_THAT(row.problem, HasSubstr("element 2144"));
    }
    if (row.variant == "idle") {
      EXPECT_EQ(row.check, "wrong") << "outputs start as NaN";
    }
    if (row.variant == "throwing") {
      EXPECT_EQ(row.check, "failed");
      EXPECT_THAT(row.problem, HasSubstr("planted: must work"));
    }
  }
}

TEST_F(Bench, ComparesWithAVariantInTurn) {
  RunOptions options;
  options.against = "planted";
  for (const Buffers buffers : {Buffers::warm, Buffers::rotating, Buffers::cold}) {
    options.buffers = buffers;
    const Report report = run("matmul", "64x64x64", options);
    ASSERT_THAT(report.rows, SizeIs(1));
    EXPECT_EQ(report.rows[0].check, "ok") << report.rows[0].problem;
    EXPECT_EQ(report.rows[0].baseline, "planted");
    EXPECT_GT(report.rows[0].ratio, 0);
    EXPECT_THAT(report.rows[0].baseline_problem, HasSubstr("the result of planted is wrong"));
    EXPECT_EQ(report.rows[0].buffers, to_string(buffers));
  }
}

// Those of the host that are installed.
TEST_F(Bench, PeersMultiply) {
  const std::string shapes =
      "33x65x17;33x65x17:ta;33x65x17:tb;33x65x17:ta:tb;1x65x17:ta:tb;33x1x17:tb;7x5x1;129x257x300;3x19x65x33;"
      "3x19x65x33:ta:tb";
  std::vector<Workload> workloads;
  for (const hal::DType dtype : {hal::DType::f32, hal::DType::bf16, hal::DType::f16})
    for (const Workload& workload : parse_shapes(catalog, "matmul", shapes, dtype))
      workloads.push_back(workload);
  workloads.push_back(
      parse_shapes(catalog, "matmul", "bf16(33, 17), bf16(17, 65) {dtype=\"f32\"}", hal::DType::f32)[0]);
  const Workload rounded =
      parse_shapes(catalog, "matmul", "f32(33, 17), f32(17, 65) {dtype=\"bf16\"}", hal::DType::f32)[0];
  int opened = 0;
  for (const PeerInfo& info : peers()) {
    if (info.backend != "cpu") continue;
    std::unique_ptr<Peer> peer;
    try {
      peer = open_peer(info.name, *device);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(info.package));
      continue;
    }
    ++opened;
    EXPECT_THAT(peer->refusal(rounded), HasSubstr("f32"));
    for (const Workload& workload : workloads) {
      const hal::DType dtype = workload.dtype();
      const std::string refusal = peer->refusal(workload);
      const bool may_refuse = dtype == hal::DType::bf16 && info.name.starts_with("onednn");
      if (!may_refuse) {
        EXPECT_EQ(refusal.empty(), dtype == hal::DType::f32)
            << info.name << " " << workload.call() << ": " << refusal;
      }
      if (!refusal.empty()) continue;
      const auto inputs = make_inputs(*device, catalog, workload, 3);
      const auto subject = peer->subject(workload, inputs, 2);
      subject->enter();
      subject->prepare(2);
      subject->run();
      subject->leave();
      for (int set = 0; set < 2; ++set) {
        const CheckResult result = Checker(workload, inputs).check(subject->outputs(set));
        EXPECT_EQ(result.state, CheckResult::State::ok)
            << info.name << " " << workload.call() << ": " << result.problem;
      }
    }
  }
  if (opened == 0) GTEST_SKIP() << "none is installed";
}

TEST_F(Bench, EveryOpRunsItsSmallestCases) {
  RunOptions options;
  options.seconds = 1e-5;
  Runner runner(*device, registry, catalog, options);
  for (const kernels::Contract* contract : catalog.contracts()) {
    if (contract->view) continue;
    std::vector<Workload> some;
    for (const kernels::Case& item : contract->cases())
      if (!item.slow && some.size() < 3) some.push_back(make_workload(*contract, item));
    Report report;
    runner.run(some, report);
    for (const Row& row : report.rows) EXPECT_EQ(row.check, "ok") << row.call << ": " << row.problem;
  }
}

TEST_F(Bench, UnknownNamesAreRefused) {
  RunOptions variant, yardstick;
  variant.variants = {"pack"};
  yardstick.against = "opnblas";
  EXPECT_THROW(run("matmul", "8x8x8", variant), Error);
  try {
    run("matmul", "8x8x8", yardstick);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'openblas'"));
  }
}

class CountingSubject final : public Subject {
 public:
  int runs = 0;
  void prepare(int) override {}
  void run() override { ++runs; }
  int sets() const override { return 1; }
  std::vector<kernels::HostTensor> outputs(int) override { return {}; }
};

TEST(Measure, ASlowCallIsRunOnce) {
  CountingSubject subject;
  MeasureOptions options{Buffers::warm, 1e-9, 5, 5, nullptr, {}};
  EXPECT_THAT(measure({&subject}, options)[0].seconds, SizeIs(5));
  const int before = subject.runs;
  options.slow = -1;
  EXPECT_THAT(measure({&subject}, options)[0].seconds, SizeIs(1));
  EXPECT_EQ(subject.runs, before + 1);
}

TEST_F(Bench, FiltersByWhatTheTableShows) {
  RunOptions options;
  options.seconds = 1e-5;
  options.filter.emplace("smallest", "filter");
  Workload named = parse_shapes(catalog, "matmul", "8x8x8", hal::DType::f32)[0];
  named.label = "the smallest";
  Runner runner(*device, registry, catalog, options);
  Report report;
  runner.run({named, parse_shapes(catalog, "matmul", "9x9x9", hal::DType::f32)[0]}, report);
  ASSERT_THAT(report.rows, SizeIs(1));
  EXPECT_EQ(report.rows[0].shape, "8x8x8");
}

TEST_F(Bench, StopsWithWhatItHas) {
  RunOptions options;
  int asked = 0;
  options.stopped = [&] { return ++asked > 4; };
  const Report report = run("matmul", "8x8x8;9x9x9;10x10x10;11x11x11;12x12x12;13x13x13;14x14x14", options);
  EXPECT_TRUE(report.stopped);
  EXPECT_LT(report.rows.size(), 7u);
}

// The checker on part of the elements: right results pass, one wrong element in a gathered row does not.
TEST_F(Bench, SamplingKeepsTheReferencesWord) {
  int cut = 0, calls = 0;
  for (const kernels::Contract* contract : catalog.contracts()) {
    if (contract->view) continue;
    for (const kernels::Case& item : contract->cases()) {
      if (item.slow) continue;
      const Workload workload = make_workload(*contract, item);
      const std::vector<kernels::HostTensor> inputs = kernels::make_inputs(*contract, workload.view(), 3);
      const Checker whole(workload, inputs, 1e9), part(workload, inputs, 1e-7);
      std::vector<kernels::HostTensor> outputs;
      std::vector<kernels::ConstTensorView> in;
      std::vector<kernels::TensorView> out;
      for (const auto& tensor : inputs) in.push_back({tensor.type, tensor.data.data()});
      for (const auto& type : workload.outputs) outputs.emplace_back(type);
      for (auto& tensor : outputs) out.push_back({tensor.type, tensor.data.data()});
      kernels::run_reference(*contract, workload.view(), in, out);
      EXPECT_EQ(whole.check(outputs).state, CheckResult::State::ok) << workload.call();
      const CheckResult sampled = part.check(outputs);
      EXPECT_EQ(sampled.state, CheckResult::State::ok) << workload.call() << ": " << sampled.problem;
      ++calls;
      if (sampled.covered != "all") ++cut;
      // Gathered are always the last elements.
      for (auto& tensor : outputs)
        if (tensor.type.dtype == hal::DType::f32 && tensor.type.elements() > 0) {
          float& last = tensor.as<float>()[tensor.type.elements() - 1];
          last += 1e6f + std::abs(last);
        } else if (!tensor.data.empty())
          tensor.data.back() ^= std::byte{1};
      if (!workload.outputs.empty()) {
        EXPECT_EQ(whole.check(outputs).state, CheckResult::State::wrong) << workload.call();
        EXPECT_EQ(part.check(outputs).state, CheckResult::State::wrong) << workload.call();
      }
    }
  }
  EXPECT_GT(calls, 150);
  EXPECT_GT(cut, calls / 3);
}

TEST(RotatingSets, ExceedTheCachesWithinMemory) {
  EXPECT_EQ(rotating_sets(1 << 20, 32 << 20, 0), 64);
  EXPECT_EQ(rotating_sets(16 << 20, 32 << 20, 0), 5);
  EXPECT_EQ(rotating_sets(1 << 30, 32 << 20, 0), 2);
  EXPECT_EQ(rotating_sets(std::int64_t{1} << 30, 32 << 20, std::int64_t{2} << 30), 1);
}

TEST_F(Bench, ARecipesCallsAreDistinctAndCounted) {
  trainer::TrainerConfig config = trainer::tiny();
  config.accumulation = 2;
  const trainer::Plan plan = plan_of(config, catalog, device->info());
  const std::vector<Workload> workloads = recipe_workloads(plan, catalog);
  std::int64_t calls = 0, expected = 0;
  std::set<std::string> seen;
  for (const Workload& workload : workloads) {
    calls += workload.per_step;
    EXPECT_TRUE(seen.insert(workload.call() + workload.planned->variant->name).second) << workload.call();
  }
  for (const auto& [name, times] : {std::pair{trainer::Step::accumulate, 2}, {trainer::Step::apply, 1}})
    for (const kernels::Call& call : plan.steps.at(name).program.calls)
      if (!catalog.contract(call.op).view) expected += times;
  EXPECT_EQ(calls, expected);
  // The short form of a matmul is the same call.
  for (const Workload& workload : workloads)
    if (workload.contract->name == "matmul") {
      EXPECT_EQ(parse_shapes(catalog, "matmul", workload.shape, hal::DType::f32)[0].call(), workload.call());
    }
}

TEST(StepReportTest, EachCallIsHeldToThePeakOfItsDtype) {
  StepReport report;
  report.ceilings.flops = 10;
  report.ceilings.bf16_flops = 40;
  for (const char* dtype : {"f32", "bf16"}) {
    StepCall& call = report.calls.emplace_back();
    call.op = "matmul", call.dtype = dtype, call.flops = 20, call.times = 3, call.seconds = {4};
  }
  EXPECT_DOUBLE_EQ(report.peak_seconds(), 3 * (2 + 0.5));
  for (const StepGroup& item : group(report, {"op"})) EXPECT_DOUBLE_EQ(item.peak_seconds, 7.5);
  report.ceilings.flops = report.ceilings.bf16_flops = 0;
  EXPECT_DOUBLE_EQ(report.peak_seconds(), 0);
}

TEST(StepReportTest, NothingIsHeldToLessThanWasReached) {
  StepReport report;
  report.ceilings.flops = 10;
  for (const auto& [op, dtype, flops] :
       {std::tuple{"matmul", "f32", 80.0}, {"matmul", "bf16", 160.0}, {"rope", "bf16", 8.0}}) {
    StepCall& call = report.calls.emplace_back();
    call.op = op, call.dtype = dtype, call.flops = flops, call.times = 1, call.seconds = {4};
  }
  report.wall = {12};
  report.raise_ceilings();
  EXPECT_DOUBLE_EQ(report.ceilings.flops_of("matmul", "f32"), 20);
  EXPECT_DOUBLE_EQ(report.ceilings.flops_of("matmul", "bf16"), 40);
  EXPECT_DOUBLE_EQ(report.ceilings.flops_of("rope", "bf16"), 20) << "all but products is done in f32";
  for (const StepGroup& item : group(report, {"op", "shape"})) EXPECT_LE(item.peak_seconds, item.seconds);
  report.wall = {4};  // without notes of the time in between
  report.raise_ceilings();
  EXPECT_DOUBLE_EQ(report.peak_seconds(), 4);
}

TEST_F(Bench, ATrainStepIsTheSumOfItsCalls) {
  const trainer::TrainerConfig config = trainer::tiny();
  StepReport report;
  report.recipe = "tiny";
  run_steps(config, plan_of(config, catalog, device->info()), *device, catalog, 2, {}, {}, report);
  EXPECT_THAT(report.wall, SizeIs(2));
  double sum = 0;
  std::int64_t calls = 0;
  for (const StepGroup& item : group(report, {"op", "phase"})) {
    sum += item.seconds;
    calls += item.calls;
  }
  EXPECT_NEAR(sum, report.kernel_seconds(), 1e-9);
  EXPECT_EQ(calls, static_cast<std::int64_t>(report.calls.size()));
  EXPECT_THROW(group(report, {"opp"}), Error);
  const auto trace = nlohmann::json::parse(to_trace(report));
  std::size_t events = 0;
  double last = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++events;
    EXPECT_GE(event["ts"].get<double>(), last);
    last = event["ts"].get<double>();
  }
  EXPECT_EQ(events, report.calls.size());
  EXPECT_EQ(nlohmann::json::parse(to_json(report, {"op"}))["schema"], "meshloom-step/1");
}

TEST(BenchCommand, WritesWhatItIsAskedFor) {
  const tests::Scratch scratch;
  const tests::Outcome run =
      tests::meshloom("bench matmul --shapes 16x16x16 --time-per-case 1ms --quiet --csv " +
                      scratch.path("a.csv") + " --html " + scratch.path("a.html") + " --json");
  EXPECT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["rows"][0]["check"], "ok");
  for (const char* name : {"commit", "built", "date", "driver", "threads", "governor", "clock"})
    EXPECT_TRUE(json["header"].contains(name)) << name;
  EXPECT_THAT(tests::read_text(scratch.path("a.csv")), HasSubstr("16x16x16"));
  EXPECT_THAT(tests::read_text(scratch.path("a.html")), HasSubstr("16x16x16"));
}

TEST(BenchCommand, AllLeavesOutWhatADtypeHasNot) {
  const tests::Outcome run =
      tests::meshloom("bench all --dtype bf16 --filter '^dropout ' --time-per-case 1ms --quiet --json");
  EXPECT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_THAT(json["notes"].dump(), HasSubstr("ops without cases of bf16: adamw"));
}

TEST(BenchCommand, GatesAgainstABaseline) {
  const tests::Scratch scratch;
  const std::string common = "bench matmul --shapes 64x64x64 --time-per-case 20ms --quiet ";
  const tests::Outcome first = tests::meshloom(common + "--json");
  ASSERT_EQ(first.code, 0) << first.err;
  auto json = nlohmann::json::parse(first.out);
  json["rows"][0]["noisy"] = false;
  json["rows"][0]["seconds"] = 1e3;
  const std::string slow = scratch.file("slow.json", json.dump());
  EXPECT_EQ(tests::meshloom(common + "--max-regression 5% --baseline " + slow).code, 0);
  json["rows"][0]["seconds"] = 1e-12;
  const std::string fast = scratch.file("fast.json", json.dump());
  const tests::Outcome gated = tests::meshloom(common + "--max-regression 5% --baseline " + fast + " --json");
  EXPECT_EQ(nlohmann::json::parse(gated.out)["rows"][0]["verdict"], "regression") << "noisy or not";
  EXPECT_EQ(gated.code, 4);
  json["rows"][0]["call"] = "matmul f32(1, 2), f32(2, 3)";
  const tests::Outcome nothing =
      tests::meshloom(common + "--max-regression 5% --baseline " + scratch.file("other.json", json.dump()));
  EXPECT_EQ(nothing.code, 1) << "a gate that judges nothing does not pass";
  EXPECT_THAT(nothing.err, HasSubstr("must have a call"));
}

TEST_F(Bench, CallsBeyondTheMemoryAreNotBegun) {
  const Report report = run("matmul", "100000x100000x100000;16777216x16777216x4", {});
  ASSERT_THAT(report.rows, SizeIs(2));
  for (const Row& row : report.rows) {
    EXPECT_EQ(row.check, "failed");
    EXPECT_THAT(row.problem, HasSubstr("must hold the call's tensors; found "));
  }
}

TEST(BenchCommand, ErrorsAreOneLine) {
  for (const char* arguments : {"bench",
                                "bench matmull",
                                "bench matmul --shapes 3",
                                "bench matmul --vs nothing",
                                "bench matmul --dtype f64",
                                "bench adamw --dtype bf16",
                                "bench matmul --variant nothing",
                                "bench matmul --filter '('",
                                "bench matmul --baseline /nonexistent.json",
                                "bench matmul --max-regression 5%",
                                "bench --json matmul",
                                "bench matmul --time-per-case soon",
                                "bench matmul --cold --warm",
                                "bench matmul --vs ''",
                                "bench matmul --max-regression ''",
                                "bench matmul --device null",
                                "bench matmul --html /nonexistent/x.html",
                                "bench --model tinyy",
                                "bench matmul --vs clblast",
                                "bench train_step tiny --by opp",
                                "bench reshape",
                                "bench matmul --set batch=1"}) {
    const tests::Outcome run = tests::meshloom(std::string(arguments) + " --quiet");
    EXPECT_TRUE(run.code == 1 || run.code == 2) << arguments << ": " << run.code;
    EXPECT_THAT(run.errors(), SizeIs(1)) << arguments;
    EXPECT_THAT(run.out, SizeIs(0)) << arguments;
  }
}

// It says what takes the memory, as a run does, before anything is allocated.
TEST(BenchCommand, AStepThatDoesNotFitIsRefused) {
  const tests::Outcome run =
      tests::meshloom("bench train_step tiny --device cpu --memory 64KiB --steps 1 --quiet");
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr("out of memory on device cpu as host-cpu: the peak must not exceed"));
}

}  // namespace
}  // namespace meshloom::bench
