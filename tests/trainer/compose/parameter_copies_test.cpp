// Parameters that are kept in 16 bits beside their f32: the same bits as with casts in every step.
#include "trainer/compose/passes/parameter_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "hal/low_precision.h"
#include "kernels/adamw/adamw.h"
#include "kernels/cast/cast.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/verify.h"
#include "tests/trainer/compose/distributed/mesh_job.h"
#include "trainer/compose/passes/update.h"
#include "trainer/learner/adamw_8bit.h"
#include "trainer/learner/sgd.h"
#include "trainer/run/state/machine.h"
#include "trainer/run/state/snapshots.h"
#include "trainer/run/state/stored_run.h"

namespace meshloom::tests {
namespace {

using kernels::DType;
using kernels::TensorType;
using testing::Contains;
using testing::HasSubstr;
using trainer::ComposeOptions;
using trainer::Plan;
using trainer::Step;

// y = x W^T in bf16, and one step of adamw for W.
struct Product {
  kernels::Program program;

  explicit Product(bool updated = true) {
    kernels::Builder builder(catalog(), program);
    const TensorType type{DType::f32, {5, 8}};
    const kernels::Tensor x = builder.input("x", {DType::bf16, {3, 8}}, kernels::Role::input);
    const kernels::Tensor w = builder.input("w", type, kernels::Role::parameter);
    const kernels::Tensor g = builder.input("g", type, kernels::Role::input);
    const kernels::Tensor m = builder.input("m", type, kernels::Role::optimizer);
    const kernels::Tensor v = builder.input("v", type, kernels::Role::optimizer);
    const kernels::Tensor control = builder.input("control", {DType::f32, {4}}, kernels::Role::input);
    const kernels::Tensor y = kernels::matmul(x, kernels::cast(w, DType::bf16), {.trans_b = true});
    builder.name(y, "y");
    builder.output(y);
    if (!updated) return;
    const kernels::AdamWResult next = kernels::adamw(w, g, m, v, control, {});
    trainer::carry(builder, w, next.parameter);
    trainer::carry(builder, m, next.m);
    trainer::carry(builder, v, next.v);
  }
};

TEST(ParameterCopies, AreOfWhatAdamWWritesAndACastReads) {
  const Product both, forward(false);
  EXPECT_THAT(trainer::copied_parameters({&both.program}, DType::bf16), testing::ElementsAre("w"));
  EXPECT_THAT(trainer::copied_parameters({&both.program}, DType::f16), testing::IsEmpty());
  EXPECT_THAT(trainer::copied_parameters({&forward.program}, DType::bf16), testing::IsEmpty());
  EXPECT_THAT(trainer::copied_parameters({&both.program, &both.program}, DType::bf16), testing::IsEmpty())
      << "two calls write it";
}

TEST(ParameterCopies, TakeThePlacesOfCasts) {
  Product product;
  trainer::keep_copies(product.program, {"w"}, DType::bf16);
  kernels::verify(product.program, catalog(), "parameter_copies");
  for (const kernels::Call& call : product.program.calls) EXPECT_NE(call.op, "cast");
  EXPECT_EQ(product.program.donations.size(), 4u);
  const kernels::Donation& last = product.program.donations.back();
  EXPECT_EQ(product.program.value(last.input).name, "copy/w");
  EXPECT_EQ(product.program.value(last.input).role, kernels::Role::parameter_copy);
  EXPECT_EQ(product.program.value(last.output).type, (TensorType{DType::bf16, {5, 8}}));
}

ComposeOptions options_of(DType dtype, std::int64_t accumulation, bool copies) {
  ComposeOptions options = small_options();
  options.dtype = dtype;
  options.accumulation = accumulation;
  options.parameter_copies = copies;
  options.logits_batch = 1;
  options.logits_sequence = 5;
  return options;
}

trainer::AdamW::Config unclipped() {
  trainer::AdamW::Config learner = adamw();
  learner.clip_norm = 0;
  return learner;
}

// All that some steps compute; in step 1 one parameter is infinite, so that it is not applied.
struct Trained {
  std::vector<std::vector<std::uint32_t>> metrics;  // bits, since some are not numbers
  std::map<std::string, std::vector<float>> values;
  Plan plan;
};

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

Trained train(const layers::Config& model, const ComposeOptions& options, const std::string& device,
              const trainer::Learner::Config& learner = adamw()) {
  constexpr int kInfinite = 1;
  Bench bench(device);
  bench.start(trainer::compose_training(model, learner, options, catalog(), bench.device->info()));
  trainer::Session& session = *bench.session;
  const std::string broken = session.plan().parameters.back().path;
  Trained trained;
  for (int step = 0; step < 5; ++step) {
    std::vector<float> before = bench.read(broken);
    if (step == kInfinite) {
      std::vector<float> infinite = before;
      infinite[0] = std::numeric_limits<float>::infinity();
      session.write(broken, std::as_bytes(std::span(infinite)));
    }
    bench.set_rate(1e-2f);
    for (const trainer::StepAction& action : session.plan().steps.schedule) {
      if (action.micro_batch >= 0)
        bench.feed(random_batch(options.rows(), options.sequence, 19,
                                static_cast<std::uint64_t>(100 + 10 * step + action.micro_batch)));
      session.run(action.program());
    }
    trained.metrics.push_back(bits_of(bench.read("metrics")));
    if (step == kInfinite) session.write(broken, std::as_bytes(std::span(before)));
    bench.feed(random_batch(options.rows(), options.sequence, 19, 7));
    session.run(Step::evaluate);
    trained.metrics.push_back(bits_of(bench.read("eval/metrics")));
  }
  const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5};
  session.write("logits/tokens", std::as_bytes(std::span(tokens)));
  session.run(Step::logits);
  for (const auto& [name, type] : session.plan().persistent_types)
    if (type.dtype == DType::f32) trained.values[name] = bench.read(name);
  for (const std::string& name : session.plan().copied_parameters) {
    std::vector<std::uint16_t> stored(trained.values.at(name).size());
    session.read(trainer::parameter_copy_name(name), std::as_writable_bytes(std::span(stored)));
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const float value = trained.values.at(name)[i];
      EXPECT_EQ(stored[i], options.dtype == DType::bf16 ? hal::to_bf16(value) : hal::to_f16(value))
          << name << " " << i;
    }
  }
  trained.plan = session.plan();
  return trained;
}

int casts_of_parameters(const Plan& plan) {
  int count = 0;
  for (const auto& [key, planned] : plan.steps.programs)
    for (const kernels::Call& call : planned.program.calls)
      count += call.op == "cast" && planned.program.value(call.inputs[0]).role == kernels::Role::parameter;
  return count;
}

void expect_same_bits(const layers::Config& model, ComposeOptions options, const std::string& device,
                      const trainer::Learner::Config& learner = adamw()) {
  options.parameter_copies = false;
  const Trained cast = train(model, options, device, learner);
  options.parameter_copies = true;
  const Trained copied = train(model, options, device, learner);
  EXPECT_TRUE(cast.plan.copied_parameters.empty());
  EXPECT_GE(copied.plan.copied_parameters.size(), 8u);
  EXPECT_GT(casts_of_parameters(cast.plan), 0);
  EXPECT_EQ(casts_of_parameters(copied.plan), 0);
  EXPECT_EQ(cast.metrics, copied.metrics);
  for (const auto& [name, values] : cast.values)
    EXPECT_EQ(bits_of(values), bits_of(copied.values.at(name))) << name;
}

class ParameterCopiesOn : public testing::TestWithParam<std::string> {};

TEST_P(ParameterCopiesOn, GiveTheSameBits) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const std::int64_t accumulation : {1, 2}) {
      SCOPED_TRACE(std::string(hal::to_string(dtype)) + ", " + std::to_string(accumulation));
      expect_same_bits(tiny_llama(), options_of(dtype, accumulation, true), GetParam());
    }
  expect_same_bits(tiny_gpt2(), options_of(DType::bf16, 1, true), GetParam());
}

TEST_P(ParameterCopiesOn, GiveTheSameBitsBesideMomentsInEightBits) {
  const auto eight_bits = learner<trainer::AdamW8bit::Config>();
  eight_bits->min_8bit_size = 1;
  for (const DType dtype : {DType::bf16, DType::f16})
    expect_same_bits(tiny_llama(), options_of(dtype, 1, true), GetParam(), *eight_bits);
  eight_bits->min_8bit_size = 1000;  // some parameters have moments in f32
  expect_same_bits(tiny_gpt2(), options_of(DType::bf16, 2, true), GetParam(), *eight_bits);
}

TEST_P(ParameterCopiesOn, GiveTheSameBitsWhereGradientsDoNotWait) {
  ComposeOptions options = options_of(DType::bf16, 1, true);
  options.optimizer_in_backward = true;
  expect_same_bits(tiny_llama(), options, GetParam(), unclipped());
  options.remat = {{".*", trainer::RematPolicy::recompute}};
  expect_same_bits(tiny_llama(), options, GetParam(), unclipped());
}

INSTANTIATE_TEST_SUITE_P(Devices, ParameterCopiesOn, testing::ValuesIn(computing_devices()),
                         [](const auto& info) { return plain_name(info.param); });

TEST(ParameterCopies, AreKeptWhereAdamWAloneUpdatesOnTheDevice) {
  Bench bench("cpu");
  const auto plan = [&](const trainer::Learner::Config& learner, const ComposeOptions& options) {
    return trainer::compose_training(tiny_llama(), learner, options, catalog(), bench.device->info());
  };
  EXPECT_FALSE(plan(adamw(), options_of(DType::bf16, 1, true)).copied_parameters.empty());
  EXPECT_TRUE(plan(adamw(), options_of(DType::f32, 1, true)).copied_parameters.empty());
  EXPECT_TRUE(
      plan(*learner<trainer::Sgd::Config>(), options_of(DType::bf16, 1, true)).copied_parameters.empty());
  const auto eight_bits = learner<trainer::AdamW8bit::Config>();
  eight_bits->min_8bit_size = 1;
  EXPECT_FALSE(plan(*eight_bits, options_of(DType::bf16, 1, true)).copied_parameters.empty());
  ComposeOptions stored = options_of(DType::bf16, 1, true);
  stored.param_dtype = DType::bf16;
  EXPECT_TRUE(plan(adamw(), stored).copied_parameters.empty());
}

TEST(ParameterCopies, AreInNoCheckpoint) {
  Bench bench("cpu");
  const Plan plan = trainer::compose_training(tiny_llama(), adamw(), options_of(DType::bf16, 2, true),
                                              catalog(), bench.device->info());
  ASSERT_FALSE(plan.copied_parameters.empty());
  for (const trainer::NamedTensor& tensor : trainer::state_tensors(plan))
    EXPECT_FALSE(tensor.name.starts_with("copy/")) << tensor.name;
}

TEST(ParameterCopies, AreLeftOutWhereTheyDoNotFit) {
  Bench bench("cpu");
  hal::DeviceInfo device = bench.device->info();
  const auto plan = [&](bool copies) {
    return trainer::compose_training(tiny_llama(), adamw(), options_of(DType::bf16, 1, copies), catalog(),
                                     device);
  };
  const Plan with = plan(true), without = plan(false);
  std::int64_t bytes = 0;
  for (const std::string& name : with.copied_parameters)
    bytes += with.persistent_types.at(trainer::parameter_copy_name(name)).bytes();
  EXPECT_GE(with.memory.at("parameter_copies"), bytes);
  EXPECT_EQ(without.memory.count("parameter_copies"), 0u);
  ASSERT_GT(with.peak_bytes, without.peak_bytes);
  EXPECT_LE(with.peak_bytes, without.peak_bytes + with.memory.at("parameter_copies"));
  device.limits.memory_bytes = without.peak_bytes;
  const Plan tight = plan(true);
  EXPECT_TRUE(tight.copied_parameters.empty());
  EXPECT_EQ(tight.peak_bytes, without.peak_bytes);
  EXPECT_THAT(tight.notes, Contains(HasSubstr("do not fit into memory")));
  // So a run may continue on a device that has less memory free.
  EXPECT_THAT(differences(machine_of(device, with), machine_of(device, without)), testing::IsEmpty());
  device.limits.memory_bytes = with.peak_bytes;
  EXPECT_EQ(plan(true).copied_parameters, with.copied_parameters);
}

TEST(ParameterCopies, AreWrittenWithTheirParameters) {
  Bench bench("cpu");
  bench.start(trainer::compose_training(tiny_llama(), adamw(), options_of(DType::f16, 1, true), catalog(),
                                        bench.device->info()));
  trainer::Session& session = *bench.session;
  const std::string name = *session.plan().copied_parameters.begin(),
                    copy = trainer::parameter_copy_name(name);
  std::vector<float> values = bench.read(name);
  for (float& value : values) value = 0.3f;
  session.write(name, std::as_bytes(std::span(values)));
  std::vector<std::uint16_t> stored(values.size());
  session.read(copy, std::as_writable_bytes(std::span(stored)));
  EXPECT_THAT(stored, testing::Each(hal::to_f16(0.3f)));
  EXPECT_THAT(message_of([&] { session.write(copy, std::as_bytes(std::span(stored))); }),
              HasSubstr("is written with its parameter"));
}

// As after a device was lost, whose memory held other numbers.
TEST(ParameterCopies, OfARestoredStateGiveTheSameBits) {
  Bench bench("cpu");
  bench.start(trainer::compose_training(tiny_llama(), adamw(), options_of(DType::bf16, 1, true), catalog(),
                                        bench.device->info()));
  const auto steps = [&](std::uint64_t first) {
    std::vector<float> metrics;
    for (std::uint64_t step = first; step < first + 2; ++step) {
      bench.set_rate(1e-2f);
      bench.feed(random_batch(4, 6, 19, step));
      bench.session->run(Step::train);
      const std::vector<float> own = bench.read("metrics");
      metrics.insert(metrics.end(), own.begin(), own.end());
    }
    return metrics;
  };
  steps(0);
  trainer::Snapshots snapshots(bench.session->plan());
  snapshots.read(*bench.session);
  snapshots.commit({{}, trainer::DivergenceDetector(2, {}), 0});
  const std::vector<float> want = steps(2);
  trainer::initialize(*bench.session, 7);
  snapshots.restore(*bench.session);
  EXPECT_EQ(steps(2), want);
}

// A part of a parameter that is divided has a copy of that part, which is what ranks exchange.
TEST(ParameterCopies, OverRanksGiveTheSameBits) {
  for (const std::int64_t accumulation : {1, 2})
    for (const auto& mesh :
         Meshes{{{"fsdp", 2}}, {{"model", 2}}, {{"fsdp", 2}, {"model", 2}}, {{"data", 2}}}) {
      SCOPED_TRACE(trainer::Topology(mesh).text() + ", " + std::to_string(accumulation));
      Job job{.accumulation = accumulation, .dtype = DType::bf16};
      const Outcome copied = run(job, mesh);
      job.parameter_copies = false;
      const Outcome cast = run(job, mesh);
      EXPECT_EQ(copied.plans[0].copied_parameters.empty(), mesh[0].name == "data");
      EXPECT_TRUE(cast.plans[0].copied_parameters.empty());
      EXPECT_EQ(copied.metrics, cast.metrics);
      for (const auto& [name, values] : cast.values) EXPECT_EQ(values, copied.values.at(name)) << name;
    }
}

// Other programs than those of an update write the parameters of islands, and stages have parts of programs.
TEST(ParameterCopies, AreNotKeptOverIslandsOrPipelines) {
  Job islands{.dtype = DType::bf16}, stages{.model = untied_llama(), .accumulation = 4, .dtype = DType::bf16};
  for (const auto& [job, mesh] : {std::pair<Job&, std::vector<trainer::MeshAxis>>{islands, {{"islands", 2}}},
                                  {stages, {{"pipeline", 2}}}}) {
    Bench bench("cpu");
    EXPECT_TRUE(trainer::compose_training(*job.model, *job.learner, options_of(job, mesh, 0), catalog(),
                                          bench.device->info())
                    .copied_parameters.empty())
        << trainer::Topology(mesh).text();
  }
}

}  // namespace
}  // namespace meshloom::tests
