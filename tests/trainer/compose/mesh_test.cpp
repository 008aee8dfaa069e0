// Training over the ranks of a mesh gives the numbers of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "backends/threads/backend.h"
#include "hal/wrappers/checked_transport.h"
#include "hal/wrappers/counted_transport.h"
#include "hal/wrappers/delayed_transport.h"
#include "hal/wrappers/slowed_device.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/passes/islands.h"
#include "trainer/config/trainer_config.h"
#include "trainer/learner/adafactor.h"
#include "trainer/learner/muon.h"
#include "trainer/learner/sgd.h"
#include "trainer/mesh/layout.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::AxisName;
using trainer::Layout;
using trainer::Plan;
using trainer::Session;
using trainer::Topology;

constexpr int kSteps = 3;
constexpr std::int64_t kVocabulary = 19;

struct Job {
  layers::Child<layers::Config> model = tiny_llama();
  std::shared_ptr<trainer::Learner::Config> learner = std::make_shared<trainer::AdamW::Config>(adamw());
  std::int64_t accumulation = 1;
  std::vector<std::int64_t> shares = {};
  std::string device = "cpu";
  trainer::ScheduleKind schedule = trainer::ScheduleKind::one_f_one_b;
  bool documents = false;
  std::int64_t source = 0;  // tokens of an encoder's sources
  kernels::DType dtype = kernels::DType::f32;
  std::vector<trainer::RematRule> remat = {};
  std::function<void(Plan&)> fault = {};
  std::string attention = "gather";
  trainer::SequenceOrder order = trainer::SequenceOrder::contiguous;
  std::int64_t sequence = 0;  // 0: that of small_options()
  bool overlap = true;
  std::function<std::unique_ptr<hal::Transport>(std::unique_ptr<hal::Transport>)> wrap = {};
  std::map<int, double> slow = {};  // devices
  trainer::OuterOptions outer = {};
  int steps = kSteps;
  bool all_targets = false;  // none is ignored
  bool unlike = false;       // ranks take turns with the devices that there are
  kernels::DType gradient_dtype = kernels::DType::f32;
};

// What a job computed: the metrics of every step, and all parameters and optimizer states after the last.
struct Outcome {
  std::vector<std::vector<float>> metrics;
  std::map<std::string, std::vector<float>> values;
  std::vector<Plan> plans;  // by rank
};

trainer::ComposeOptions options_of(const Job& job, const std::vector<trainer::MeshAxis>& mesh, int rank) {
  trainer::ComposeOptions options = small_options();
  options.batch = 16;
  options.accumulation = job.accumulation;
  options.schedule = job.schedule;
  options.documents = job.documents;
  options.source = job.source;
  options.dtype = job.dtype;
  options.remat = job.remat;
  options.outer = job.outer;
  options.mesh = mesh;
  options.shares = job.shares;
  options.attention = job.attention;
  options.sequence_order = job.order;
  options.gradient_dtype = job.gradient_dtype;
  if (job.sequence > 0) options.sequence = job.sequence;
  options.rank = rank;
  return options;
}

// The values that a run keeps, put together from the parts of the ranks that are the first to hold them.
void collect(Session& session, Outcome& outcome) {
  const Plan& plan = session.plan();
  for (const auto& [name, type] : plan.persistent_types) {
    if (type.dtype != kernels::DType::f32 || name.starts_with("grad/") || name.starts_with("accumulate/"))
      continue;
    Layout layout = plan.layout(name, plan.mesh.rank());
    layout.first = layout.first && (plan.divided.count(name) > 0 || plan.mesh.rank() == 0) &&
                   name.find('@') == std::string::npos && !name.starts_with("pipe/");
    if (!layout.first || layout.whole.dtype != kernels::DType::f32) continue;
    std::vector<float> part(static_cast<std::size_t>(layout.range.count));
    session.read(name, std::as_writable_bytes(std::span(part)));
    std::vector<float>& whole = outcome.values[name];
    whole.resize(static_cast<std::size_t>(layout.whole.elements()), std::nanf(""));
    trainer::for_runs(layout, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      std::copy_n(part.begin() + from, count, whole.begin() + to);
    });
  }
}

Outcome run(const Job& job, const std::vector<trainer::MeshAxis>& mesh) {
  Outcome outcome;
  const int ranks = Topology(mesh).ranks();
  outcome.plans.resize(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<hal::Device>> devices;
  const std::array<std::string, 3> unlike{"cpu", "opencl", "vulkan"};
  for (int rank = 0; rank < ranks; ++rank)
    devices.push_back(
        build().registry.open(job.unlike ? unlike[static_cast<std::size_t>(rank) % 3] : job.device));
  for (const auto& [rank, factor] : job.slow) {
    std::unique_ptr<hal::Device>& device = devices[static_cast<std::size_t>(rank)];
    device = hal::slowed(std::move(device), factor);
  }
  std::mutex mutex;
  backends::threads::run_ranks(ranks, [&](std::unique_ptr<hal::Transport> plain) {
    const std::unique_ptr<hal::Transport> transport =
        job.wrap ? job.wrap(std::move(plain)) : std::move(plain);
    const int rank = transport->rank();
    hal::Device& device = *devices[static_cast<std::size_t>(rank)];
    const trainer::ComposeOptions options = options_of(job, mesh, rank);
    Plan plan = trainer::compose_training(*job.model, *job.learner, options, catalog(), device.info());
    if (job.fault) job.fault(plan);
    Session session(device, catalog(), std::move(plan), {},
                    {transport.get(), job.unlike ? 300.0 : 60.0, job.overlap});
    trainer::initialize(session, 1);
    const std::int64_t rows = options.rows();
    std::vector<std::vector<float>> metrics;
    for (int step = 0; step < job.steps; ++step) {
      const float rate = 0.01F;
      session.write("lr", std::as_bytes(std::span(&rate, 1)));
      for (const trainer::StepAction& action : session.plan().steps.schedule) {
        if (action.kind != trainer::StepAction::Kind::run) {
          session.transfer(session.plan().steps.transfers.at(static_cast<std::size_t>(action.transfer)));
          continue;
        }
        const bool piped = action.step == trainer::Step::forward;
        if (action.micro_batch >= 0 &&
            (piped || action.step == trainer::Step::train || action.step == trainer::Step::accumulate)) {
          Batch batch = random_batch(rows, options.sequence, kVocabulary,
                                     static_cast<std::uint64_t>(100 * step + action.micro_batch));
          if (job.all_targets)
            for (std::int32_t& target : batch.targets) target = std::max(target, 0);
          // The session keeps this rank's part.
          const auto write = [&](std::string name, const std::vector<std::int32_t>& all) {
            if (piped) name = trainer::name_in_slot(name, action.chunk, action.slot);
            if (session.plan().persistent.count(name)) session.write(name, std::as_bytes(std::span(all)));
          };
          write("tokens", batch.tokens);
          write("targets", batch.targets);
          if (job.documents) {  // two a row
            std::vector<std::int32_t> segments, positions;
            for (std::int64_t i = 0; i < rows * options.sequence; ++i) {
              const std::int64_t in_row = i % options.sequence, half = options.sequence / 2;
              segments.push_back(in_row < half ? 1 : 2);
              positions.push_back(static_cast<std::int32_t>(in_row < half ? in_row : in_row - half));
            }
            write("segments", segments);
            write("positions", positions);
          }
          if (job.source > 0) {
            const Batch source =
                random_batch(rows, job.source, kVocabulary, static_cast<std::uint64_t>(step));
            write("source", source.tokens);
            write("source_segments", std::vector<std::int32_t>(source.tokens.size(), 1));
            write("segments", std::vector<std::int32_t>(batch.tokens.size(), 1));
          }
          std::string rng = "rng_state";
          if (piped) rng = trainer::name_in_slot(rng, action.chunk, action.slot);
          const std::vector<std::int32_t> state{1, step,
                                                static_cast<std::int32_t>(action.micro_batch * rows)};
          if (session.plan().persistent.count(rng)) session.write(rng, std::as_bytes(std::span(state)));
        }
        session.run(action.program());
      }
      session.finish_transfers();
      for (const trainer::OuterPart& part : session.plan().steps.outer)
        if (part.last(step + 1) == step + 1) session.run(part.program);
      std::vector<float> row(session.plan().metrics.at("metrics").size());
      session.read("metrics", std::as_writable_bytes(std::span(row)));
      metrics.push_back(row);
    }
    const std::lock_guard lock(mutex);
    // Islands have losses of their own: those of the first are taken.
    const bool alike = session.plan().mesh.size(AxisName::islands) == 1;
    if (alike ? outcome.metrics.empty() : rank == 0) outcome.metrics = metrics;
    if (alike) {
      EXPECT_EQ(metrics, outcome.metrics) << "rank " << rank << " has other metrics than another rank";
    }
    collect(session, outcome);
    outcome.plans[static_cast<std::size_t>(rank)] = session.plan();
  });
  return outcome;
}

// The largest difference, in units of the largest value.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 1e-30, apart = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    apart = std::max(apart, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return apart / largest;
}

constexpr double kLosses = 1e-5;

// `rounding` names tensors whose gradients are nothing but rounding.
void expect_equal(const Outcome& got, const Outcome& want, double tolerance,
                  const std::vector<std::string>& rounding = {}) {
  ASSERT_EQ(got.metrics.size(), want.metrics.size());
  for (std::size_t step = 0; step < want.metrics.size(); ++step)
    for (std::size_t i = 0; i < want.metrics[step].size(); ++i)
      EXPECT_NEAR(got.metrics[step][i], want.metrics[step][i],
                  kLosses * std::abs(want.metrics[step][i]) + 1e-6)
          << "step " << step << ", " << want.plans[0].metrics.at("metrics")[i];
  for (const auto& [name, values] : want.values) {
    ASSERT_TRUE(got.values.count(name)) << name;
    // A bias of all keys changes no softmax: its gradient is nothing but rounding.
    if (name.ends_with("k_proj/bias") ||
        std::any_of(rounding.begin(), rounding.end(), [&](const auto& end) { return name.ends_with(end); }))
      continue;
    EXPECT_LE(difference(got.values.at(name), values), tolerance) << name;
  }
}

const std::vector<std::vector<trainer::MeshAxis>> kMeshes{
    {{"data", 4}}, {{"fsdp", 4}}, {{"data", 2}, {"fsdp", 2}}};

void check(const Job& job, double tolerance,
           const std::vector<std::vector<trainer::MeshAxis>>& meshes = kMeshes) {
  Job alone = job;
  alone.shares.clear();
  const Outcome one = run(alone, {});
  for (const auto& mesh : meshes) {
    SCOPED_TRACE(Topology(mesh).text());
    expect_equal(run(job, mesh), one, tolerance);
  }
}

// Adam and Muon divide by what may be tiny, which magnifies the rounding of sums; SGD does not.
constexpr double kMagnified = 1e-3;

template <typename Config>
std::shared_ptr<Config> learner() {
  auto config = std::make_shared<Config>();
  config->peak_learning_rate = 1e-2;
  return config;
}

const std::vector<std::vector<trainer::MeshAxis>> kModelMeshes{
    {{"model", 2}}, {{"model", 4}}, {{"data", 2}, {"model", 2}}, {{"fsdp", 2}, {"model", 2}}};

TEST(OverRanks, ModelWithSgdIsEqualToOneRank) {
  check({.learner = learner<trainer::Sgd::Config>()}, kLosses, kModelMeshes);
}
TEST(OverRanks, ModelIsEqualToOneRank) { check({}, kMagnified, kModelMeshes); }
TEST(OverRanks, ModelWithBiasesIsEqualToOneRank) {
  check({.model = tiny_gpt2(), .accumulation = 2}, kMagnified,
        {{{"model", 2}}, {{"data", 2}, {"model", 2}}, {{"fsdp", 2}, {"model", 2}}});
}
TEST(OverRanks, ModelWithExpertsIsEqualToOneRank) {
  check({.model = of_experts(tiny_llama())}, kMagnified, {{{"fsdp", 2}, {"model", 2}}});
}
TEST(OverRanks, ModelWithMuonIsEqualToOneRank) {
  check({.learner = learner<trainer::Muon::Config>()}, kMagnified, {{{"fsdp", 2}, {"model", 2}}});
}
TEST(OverRanks, ModelWithAdafactorIsEqualToOneRank) {
  check({.learner = learner<trainer::Adafactor::Config>()}, kMagnified, {{{"fsdp", 2}, {"model", 2}}});
}

// Every value of 16 bits is rounded, and sums that are divided are rounded otherwise. Two heads of keys are shared by 4 ranks.
TEST(OverRanks, ModelIn16BitsIsCloseToOneRank) {
  for (const kernels::DType dtype : {kernels::DType::bf16, kernels::DType::f16}) {
    const Job job{.learner = learner<trainer::Sgd::Config>(), .dtype = dtype};
    const Outcome one = run(job, {});
    for (const auto& mesh : kModelMeshes) {
      SCOPED_TRACE(Topology(mesh).text() + ", " + std::string(hal::to_string(dtype)));
      const Outcome many = run(job, mesh);
      ASSERT_EQ(many.metrics.size(), one.metrics.size());
      for (std::size_t step = 0; step < one.metrics.size(); ++step)
        EXPECT_NEAR(many.metrics[step][0], one.metrics[step][0], 0.01 * std::abs(one.metrics[step][0]));
      for (const auto& [name, values] : one.values) {
        if (name.starts_with("eval/") || name == "logits") continue;
        ASSERT_TRUE(many.values.count(name)) << name;
        EXPECT_LE(difference(many.values.at(name), values), 0.03) << name;
      }
    }
  }
}

TEST(OverRanks, SgdIsEqualToOneRank) { check({.learner = learner<trainer::Sgd::Config>()}, kLosses); }
TEST(OverRanks, LlamaIsEqualToOneRank) { check({}, kMagnified); }
TEST(OverRanks, AccumulationIsEqualToOneRank) {
  check({.accumulation = 2}, kMagnified, {{{"data", 2}}, {{"fsdp", 2}}, {{"data", 2}, {"fsdp", 4}}});
}
TEST(OverRanks, Gpt2IsEqualToOneRank) { check({.model = tiny_gpt2(), .accumulation = 2}, kMagnified); }
TEST(OverRanks, ExpertsAreEqualToOneRank) {
  check({.model = of_experts(tiny_llama())}, kMagnified, {{{"data", 2}, {"fsdp", 2}}});
}
TEST(OverRanks, MuonIsEqualToOneRank) {
  check({.learner = learner<trainer::Muon::Config>()}, kMagnified, {{{"data", 2}, {"fsdp", 2}}});
}
TEST(OverRanks, AdafactorIsEqualToOneRank) {
  check({.learner = learner<trainer::Adafactor::Config>()}, kMagnified, {{{"data", 2}, {"fsdp", 2}}});
}

template <typename Model>
Model with(Model model, const std::string& field, const std::string& value) {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  layers::set(model, field, value, classes);
  return model;
}

// Four experts, two for each token.
template <typename Model>
Model of_four_experts(Model model, const std::string& fields = "") {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  layers::replace(model, "FeedForward",
                  "MoE{num_experts=4 " + (fields.empty() ? "gating=TopK{k=2}" : fields) + "}", classes);
  return model;
}

const std::vector<std::vector<trainer::MeshAxis>> kExpertMeshes{{{"expert", 2}},
                                                                {{"expert", 4}},
                                                                {{"data", 2}, {"expert", 2}},
                                                                {{"expert", 2}, {"fsdp", 2}},
                                                                {{"expert", 2}, {"model", 2}},
                                                                {{"expert", 2}, {"fsdp", 2}, {"model", 2}}};

TEST(OverRanks, DividedExpertsWithSgdAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama()), .learner = learner<trainer::Sgd::Config>()}, kLosses,
        kExpertMeshes);
}
TEST(OverRanks, DividedExpertsAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama(),
                                  "gating=TopK{k=2 regularizers=[LossFreeBalancing{},"
                                  "LoadBalancingLoss{},RouterZLoss{}]}"),
         .accumulation = 2},
        kMagnified, kExpertMeshes);
}
TEST(OverRanks, DividedExpertsOfACapacityAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama(), "gating=TopK{k=2 capacity=Capacity{factor=1 min=1}}"),
         .learner = learner<trainer::Sgd::Config>()},
        kLosses,
        {{{"expert", 2}}, {{"expert", 4}}, {{"data", 2}, {"expert", 2}}, {{"expert", 2}, {"model", 2}}});
}
TEST(OverRanks, DividedExpertsBesideASharedOneAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama(), "gating=TopK{k=2} shared=FeedForward{hidden_dim=8}"),
         .learner = learner<trainer::Sgd::Config>()},
        kLosses, {{{"expert", 4}}, {{"expert", 2}, {"fsdp", 2}}, {{"expert", 2}, {"model", 2}}});
}
TEST(OverRanks, DividedExpertsWithBiasesAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_gpt2()), .learner = learner<trainer::Sgd::Config>()}, kLosses,
        {{{"expert", 4}}, {{"expert", 2}, {"fsdp", 2}}, {{"expert", 2}, {"model", 2}}});
}
TEST(OverRanks, DividedExpertsWithMuonAreEqualToOneRank) {
  check({.model = of_four_experts(tiny_llama()), .learner = learner<trainer::Muon::Config>()}, kMagnified,
        {{{"expert", 2}}, {{"expert", 2}, {"fsdp", 2}}});
}
// Where nothing can be divided by experts, the axis divides rows alone.
TEST(OverRanks, AModelWithoutExpertsIsDividedByRows) {
  check({.learner = learner<trainer::Sgd::Config>()}, kLosses,
        {{{"expert", 4}}, {{"data", 2}, {"expert", 2}}, {{"expert", 2}, {"fsdp", 2}}});
}
TEST(OverRanks, ExpertsOfOneRankAreItsOwn) {
  const auto device = build().registry.open("cpu");
  const Plan plan = trainer::compose_training(of_four_experts(tiny_llama()), adamw(),
                                              options_of({}, {{"expert", 4}}, 1), catalog(), device->info());
  int experts = 0;
  for (const auto& [name, type] : plan.persistent_types)
    if (name.find("/experts/") != std::string::npos) {
      ++experts;
      EXPECT_EQ(type.elements() * 4, plan.divided.at(name).whole.elements()) << name;
    }
  EXPECT_GT(experts, 0);
}
TEST(OverRanks, ExpertsThatAreNotDividedEvenlyAreRefused) {
  const std::string message = message_of([] {
    const auto device = build().registry.open("cpu");
    trainer::compose_training(of_four_experts(tiny_llama()), adamw(), options_of({}, {{"expert", 3}}, 0),
                              catalog(), device->info());
  });
  EXPECT_THAT(message, HasSubstr("the axis expert must divide the 4 experts; 2 and 4 do; found expert=3"));
}

template <typename Model>
Model deep(const Model& model) {
  return with(model, "decoder.stack.num_layers", "4");
}

layers::CausalLM::Config untied_llama() {
  return layers::llama_config({.vocab = 19, .dim = 16, .layers = 4, .heads = 4, .kv_heads = 2, .ffn = 24});
}

// Every rank computes what one rank does, in the same order: bit for bit.
void check_bits(const Job& job, const std::vector<trainer::MeshAxis>& mesh) {
  SCOPED_TRACE(Topology(mesh).text() + ", " + std::string(to_string(job.schedule)));
  const Outcome one = run(job, {}), many = run(job, mesh);
  EXPECT_EQ(many.metrics, one.metrics);
  for (const auto& [name, values] : one.values) {
    if (name.starts_with("eval/") || name == "logits") continue;
    ASSERT_TRUE(many.values.count(name)) << name;
    EXPECT_EQ(many.values.at(name), values) << name;
  }
}

const std::vector<trainer::ScheduleKind> kSchedules{
    trainer::ScheduleKind::gpipe, trainer::ScheduleKind::one_f_one_b, trainer::ScheduleKind::interleaved,
    trainer::ScheduleKind::zero_bubble};

TEST(OverPipeline, SchedulesGiveTheBitsOfOneRank) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check_bits({.model = untied_llama(), .accumulation = 4, .schedule = schedule}, {{"pipeline", 2}});
  check_bits({.model = untied_llama(), .accumulation = 4}, {{"pipeline", 4}});
}
TEST(OverPipeline, RecomputedActivationsGiveTheBitsOfOneRank) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check_bits({.model = untied_llama(),
                .accumulation = 4,
                .schedule = schedule,
                .remat = {{"**", trainer::RematPolicy::recompute}}},
               {{"pipeline", 2}});
}
TEST(OverPipeline, DocumentsGiveTheBitsOfOneRank) {
  check_bits({.model = untied_llama(), .accumulation = 4, .documents = true}, {{"pipeline", 4}});
}
TEST(OverPipeline, DropoutGivesTheBitsOfOneRank) {
  const auto model = with(untied_llama(), "decoder.stack.layer.attention.dropout", "0.2");
  for (const trainer::ScheduleKind schedule : kSchedules)
    check_bits({.model = model, .accumulation = 4, .schedule = schedule}, {{"pipeline", 2}});
}
TEST(OverPipeline, TiedEmbeddingsAreEqualToOneRank) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check({.model = deep(tiny_gpt2()),
           .learner = learner<trainer::Sgd::Config>(),
           .accumulation = 4,
           .schedule = schedule},
          kLosses, {{{"pipeline", 2}}, {{"pipeline", 2}, {"fsdp", 2}}, {{"pipeline", 2}, {"data", 2}}});
}
TEST(OverPipeline, RowsAndStatesAreDividedAsWell) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check({.model = untied_llama(), .accumulation = 4, .schedule = schedule}, kMagnified,
          {{{"pipeline", 2}, {"data", 2}},
           {{"pipeline", 2}, {"fsdp", 2}},
           {{"pipeline", 2}, {"data", 2}, {"fsdp", 2}}});
}
TEST(OverPipeline, ExpertsGiveTheBitsOfOneRank) {
  for (const trainer::ScheduleKind schedule : kSchedules)
    check_bits({.model = of_experts(untied_llama()), .accumulation = 4, .schedule = schedule},
               {{"pipeline", 2}});
}
TEST(OverPipeline, EncodersAreEqualToOneRank) {
  const auto model = layers::encoder_decoder_config(
      {.vocab = 19, .dim = 16, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 24, .tied = true});
  for (const trainer::ScheduleKind schedule : kSchedules)
    check({.model = model,
           .learner = learner<trainer::Sgd::Config>(),
           .accumulation = 4,
           .schedule = schedule,
           .source = 5},
          kLosses, {{{"pipeline", 2}}});
  check({.model = model, .learner = learner<trainer::Sgd::Config>(), .accumulation = 4, .source = 5}, kLosses,
        {{{"pipeline", 4}}, {{"pipeline", 2}, {"fsdp", 2}}});
}
TEST(OverPipeline, LowPrecisionIsEqualToOneRank) {
  check_bits({.model = untied_llama(), .accumulation = 4, .dtype = kernels::DType::bf16}, {{"pipeline", 2}});
  check_bits({.model = untied_llama(), .accumulation = 4, .dtype = kernels::DType::f16}, {{"pipeline", 2}});
}

// A backward pass on what another micro-batch kept changes the result.
TEST(OverPipeline, AStaleStashIsSeen) {
  const auto swap_slots = [](Plan& plan) {
    if (plan.mesh.rank() > 0) return;  // both ranks alike would only add in another order
    for (trainer::StepAction& action : plan.steps.schedule)
      if (action.kind == trainer::StepAction::Kind::run && action.step == trainer::Step::backward &&
          action.slot < 2)
        action.slot = 1 - action.slot;
  };
  const Job job{.model = untied_llama(), .accumulation = 4, .schedule = trainer::ScheduleKind::gpipe};
  Job faulty = job;
  faulty.fault = swap_slots;
  const Outcome one = run(job, {}), many = run(faulty, {{"pipeline", 2}});
  double most = 0;
  for (const auto& [name, values] : one.values)
    if (name.starts_with("optimizer/m/")) most = std::max(most, difference(many.values.at(name), values));
  EXPECT_GT(most, 10 * kMagnified);
}

TEST(OverPipeline, MemoryIsThatOfTheSlotsInFlight) {
  const auto bytes = [](trainer::ScheduleKind schedule, int rank) {
    trainer::ComposeOptions options =
        options_of({.accumulation = 8, .schedule = schedule}, {{"pipeline", 2}}, rank);
    const auto device = build().registry.open("cpu");
    const Plan plan = trainer::compose_training(untied_llama(), adamw(), options, catalog(), device->info());
    std::int64_t stash = 0;
    for (const auto& [name, type] : plan.persistent_types)
      if (name.starts_with("stash/")) stash += type.bytes();
    return stash;
  };
  const std::int64_t one = bytes(trainer::ScheduleKind::one_f_one_b, 1);
  EXPECT_EQ(bytes(trainer::ScheduleKind::gpipe, 1), 8 * one);
  EXPECT_EQ(bytes(trainer::ScheduleKind::gpipe, 0), 4 * bytes(trainer::ScheduleKind::one_f_one_b, 0));
}

TEST(OverPipeline, DividedExpertsAreEqualToOneRank) {
  check({.model = of_four_experts(untied_llama()),
         .learner = learner<trainer::Sgd::Config>(),
         .accumulation = 4},
        kLosses, {{{"pipeline", 2}, {"expert", 2}}, {{"pipeline", 2}, {"data", 2}, {"expert", 2}}});
}

TEST(OverRanks, ModelAndPipelineAreEqualToOneRank) {
  check({.model = untied_llama(), .accumulation = 4}, kMagnified,
        {{{"pipeline", 2}, {"model", 2}}, {{"pipeline", 2}, {"fsdp", 2}, {"model", 2}}});
}

// Rows in proportion to the speed of ranks.
TEST(OverRanks, SharesOfRowsAreEqualToOneRank) {
  const std::vector<std::int64_t> four{7, 5, 3, 1}, two{11, 5};
  check({.learner = learner<trainer::Sgd::Config>(), .shares = four}, kLosses);
  check({.accumulation = 2, .shares = {3, 1, 2, 2}}, kMagnified);
  check({.model = tiny_gpt2(), .shares = two}, kMagnified,
        {{{"data", 2}, {"model", 2}}, {{"fsdp", 2}, {"model", 2}}});
  check({.model = of_experts(tiny_llama()), .shares = four}, kMagnified, {{{"data", 2}, {"fsdp", 2}}});
  check({.shares = two, .sequence = 8}, kMagnified, {{{"data", 2}, {"seq", 2}}, {{"fsdp", 2}, {"seq", 2}}});
}

// Tokens over ranks, in every way to divide attention. A rank has one head of keys at most where the axis model takes the other.
using Meshes = std::vector<std::vector<trainer::MeshAxis>>;
const Meshes kSequenceMeshes{{{"seq", 2}},
                             {{"seq", 4}},
                             {{"data", 2}, {"seq", 2}},
                             {{"fsdp", 2}, {"seq", 2}},
                             {{"seq", 2}, {"model", 2}}};

// All but those in which a rank's heads of keys, of two, are no multiple of the parts of the sequence.
Meshes with_heads(const Meshes& meshes) {
  Meshes fitting;
  for (const auto& mesh : meshes)
    if (2 % (Topology(mesh).size(trainer::AxisName::seq) * Topology(mesh).size(trainer::AxisName::model)) ==
        0)
      fitting.push_back(mesh);
  return fitting;
}

void check_sequence(Job job, double tolerance, const Meshes& meshes = kSequenceMeshes,
                    const std::vector<std::string>& methods = {"gather", "all_to_all", "ring"},
                    const std::vector<std::string>& rounding = {}) {
  if (job.sequence == 0) job.sequence = 8;
  const Outcome one = run(job, {});
  for (const std::string& method : methods)
    for (const auto& mesh : method == "all_to_all" ? with_heads(meshes) : meshes)
      for (const auto order : {trainer::SequenceOrder::contiguous, trainer::SequenceOrder::zigzag}) {
        if (method == "all_to_all" && order == trainer::SequenceOrder::zigzag) continue;
        SCOPED_TRACE(Topology(mesh).text() + ", " + method + ", " + std::string(to_string(order)));
        job.attention = method;
        job.order = order;
        expect_equal(run(job, mesh), one, tolerance, rounding);
      }
}

TEST(OverRanks, SequencesWithSgdAreEqualToOneRank) {
  check_sequence({.learner = learner<trainer::Sgd::Config>()}, kLosses);
}
TEST(OverRanks, SequencesWithAccumulationAreEqualToOneRank) {
  check_sequence({.accumulation = 2}, kMagnified, {{{"seq", 2}}, {{"fsdp", 2}, {"seq", 2}, {"model", 2}}},
                 {"gather", "ring"});
}
// A rank has one row of a micro-batch.
TEST(OverRanks, PartsOfOneSequenceAreEqualToOneRank) {
  check_sequence({.accumulation = 8}, kMagnified, {{{"data", 2}, {"seq", 2}}});
}
TEST(OverRanks, SequencesWithLearnedPositionsAreEqualToOneRank) {
  check_sequence({.model = tiny_gpt2()}, kMagnified, {{{"seq", 2}}, {{"data", 2}, {"seq", 2}}});
}
TEST(OverRanks, SequencesOfDocumentsAreEqualToOneRank) {
  check_sequence({.documents = true}, kMagnified, {{{"seq", 2}}, {{"seq", 4}}});
}
TEST(OverRanks, SequencesWithWindowsAreEqualToOneRank) {
  // A softmax of one key is 1, whatever query and key are.
  const std::vector<std::string> rounding{"q_proj/weight", "k_proj/weight"};
  for (const std::string width : {"1", "2", "5"})
    check_sequence(
        {.model =
             with(tiny_llama(), "decoder.stack.layer.attention.mask", "SlidingWindow{window=" + width + "}"),
         .learner = learner<trainer::Sgd::Config>()},
        kLosses, {{{"seq", 4}}}, {"gather", "ring"}, width == "1" ? rounding : std::vector<std::string>{});
}
// What depends on the distance of a query from a key, or on bits that are made of positions, and dropout, which depends on places.
TEST(OverRanks, SequencesWithMasksAndBiasesAreEqualToOneRank) {
  const std::string attention = "decoder.stack.layer.attention.";
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"mask", "MaskFunction{visible=\"(q-k)%3==0\" base=Causal{}}"},
           {"mask", "Full{}"},
           {"distance_bias", "RelativeBias{}"},
           {"distance_bias", "Alibi{}"},
           {"dropout", "0.2"}}) {
    SCOPED_TRACE(value);
    check_sequence(
        {.model = with(tiny_llama(), attention + field, value), .learner = learner<trainer::Sgd::Config>()},
        kLosses, {{{"seq", 2}}, {{"data", 2}, {"seq", 2}}}, {"gather", "all_to_all"});
  }
}
TEST(OverRanks, SequencesWithLossesInChunksAreEqualToOneRank) {
  check_sequence({.model = with(tiny_llama(), "loss", "ChunkedLoss{chunk_size=8}"),
                  .learner = learner<trainer::Sgd::Config>()},
                 kLosses, {{{"seq", 4}}, {{"seq", 2}, {"model", 2}}}, {"ring"});
}
TEST(OverRanks, SequencesWithMuonAreEqualToOneRank) {
  check_sequence({.learner = learner<trainer::Muon::Config>()}, kMagnified, {{{"fsdp", 2}, {"seq", 2}}},
                 {"gather"});
}
TEST(OverRanks, ARingRefusesMasksOfBits) {
  const auto model = with(tiny_llama(), "decoder.stack.layer.attention.distance_bias", "RelativeBias{}");
  trainer::ComposeOptions options = options_of({.attention = "ring"}, {{"seq", 2}}, 0);
  const auto device = build().registry.open("cpu");
  EXPECT_THAT(
      message_of([&] { trainer::compose_training(model, adamw(), options, catalog(), device->info()); }),
      HasSubstr("gather takes all; found a bias"));
}
TEST(OverRanks, SequencesWithExpertsAreEqualToOneRank) {
  check_sequence({.model = of_experts(tiny_llama())}, kMagnified, {{{"seq", 2}}, {{"data", 2}, {"seq", 2}}},
                 {"gather"});
}
TEST(OverRanks, SequencesOfEncodersAreEqualToOneRank) {
  const auto model = layers::encoder_decoder_config(
      {.vocab = 19, .dim = 16, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 24, .tied = true});
  check_sequence({.model = model, .learner = learner<trainer::Sgd::Config>(), .source = 12}, kLosses,
                 {{{"seq", 2}}}, {"gather"});
}
TEST(OverRanks, SequencesAndPipelineAreEqualToOneRank) {
  check_sequence({.model = untied_llama(), .accumulation = 4}, kMagnified,
                 {{{"pipeline", 2}, {"seq", 2}}, {{"pipeline", 2}, {"seq", 2}, {"model", 2}}},
                 {"gather", "ring"});
}
TEST(OverRanks, SequencesIn16BitsAreCloseToOneRank) {
  Job job{.learner = learner<trainer::Sgd::Config>(), .dtype = kernels::DType::f16, .sequence = 8};
  const Outcome one = run(job, {});
  for (const std::string method : {"gather", "all_to_all", "ring"}) {
    job.attention = method;
    const Outcome many = run(job, {{"seq", 2}});
    for (std::size_t step = 0; step < one.metrics.size(); ++step)
      EXPECT_NEAR(many.metrics[step][0], one.metrics[step][0], 1e-3 * std::abs(one.metrics[step][0]))
          << method;
  }
}

// Of gradients in fewer bits every way to divide a step has about the losses of one rank, and moves what its plan says.
TEST(OverRanks, GradientsInFewerBitsAreCloseToOneRank) {
  struct Row {
    std::vector<trainer::MeshAxis> mesh;
    Job job = {};
  };
  const auto wide = [](auto model) { return with(model, "decoder.dim", "48"); };
  Job pipeline{.model = wide(untied_llama()), .accumulation = 4},
      tied{.model = deep(tiny_gpt2()), .accumulation = 4};
  std::vector<Row> rows{
      {{{"data", 2}}, {.model = wide(tiny_llama())}},
      {{{"data", 3}}, {.model = wide(tiny_llama()), .shares = {7, 5, 4}}},
      {{{"data", 2}, {"fsdp", 2}}, {.model = wide(tiny_llama())}},
      {{{"data", 2}}, {.model = wide(tiny_gpt2()), .accumulation = 2}},
      {{{"fsdp", 4}}, {.model = wide(tiny_gpt2()), .accumulation = 2}},
      {{{"expert", 2}, {"fsdp", 2}}, {.model = of_four_experts(wide(tiny_llama()))}},
      {{{"data", 2}, {"seq", 2}}, {.model = wide(tiny_llama()), .sequence = 8}},
      {{{"fsdp", 2}, {"model", 2}}, {.model = wide(tiny_llama())}},
      {{{"data", 2}}, {.model = wide(tiny_llama()), .learner = learner<trainer::Muon::Config>()}},
      {{{"islands", 2}, {"data", 2}}, {.model = wide(tiny_llama()), .outer = {.every = 2}}},
      {{{"pipeline", 2}, {"data", 2}}, tied},
      {{{"pipeline", 2}, {"fsdp", 2}}, tied}};
  for (const trainer::ScheduleKind schedule : kSchedules) {
    pipeline.schedule = schedule;
    rows.push_back({{{"pipeline", 2}, {"fsdp", 2}}, pipeline});
  }
  for (Row& row : rows)
    for (const kernels::DType dtype : {kernels::DType::bf16, kernels::DType::i8}) {
      SCOPED_TRACE(Topology(row.mesh).text() + ", " + std::string(hal::to_string(dtype)));
      Job exact = row.job;
      const int ranks = Topology(row.mesh).ranks();
      std::vector<hal::TrafficCount> counts(static_cast<std::size_t>(ranks));
      row.job.gradient_dtype = dtype;
      row.job.wrap = [&](std::unique_ptr<hal::Transport> plain) {
        hal::TrafficCount& count = counts[static_cast<std::size_t>(plain->rank())];
        return hal::counted(std::move(plain), count);
      };
      const Outcome want = run(exact, row.mesh), got = run(row.job, row.mesh);
      for (std::size_t step = 0; step < want.metrics.size(); ++step)
        EXPECT_NEAR(got.metrics[step][0], want.metrics[step][0], 0.01 * std::abs(want.metrics[step][0]));
      int lossy = 0;
      for (const auto& [name, values] : got.values)
        lossy += name.starts_with("optimizer/gradient_error_") &&
                 std::any_of(values.begin(), values.end(), [](float x) { return x != 0; });
      EXPECT_GT(lossy, 3);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto bytes = [&](const Outcome& outcome) {
          trainer::MovedBytes moved;
          for (const auto& [axes, of_axes] :
               outcome.plans[static_cast<std::size_t>(rank)].update_moved_bytes())
            for (int step = 0; step < kSteps; ++step) moved += of_axes;
          return moved;
        };
        EXPECT_LT(bytes(got).out, bytes(want).out);
        if (!got.plans[0].steps.outer.empty() || !got.plans[0].steps.transfers.empty()) continue;
        hal::Traffic sent;
        for (const hal::Traffic& traffic : counts[static_cast<std::size_t>(rank)].sent) {
          sent.bytes += traffic.bytes;
          sent.messages += traffic.messages;
        }
        EXPECT_EQ(sent, (hal::Traffic{bytes(got).messages_out, bytes(got).out}));
      }
    }
}

// A rank that reads the rows of another one changes the result by more than the tolerance.
TEST(OverRanks, OtherRowsAreSeen) {
  Job other;
  other.model = tiny_llama();
  const Outcome one = run(other, {});
  other.accumulation = 2;  // other batches
  const Outcome changed = run(other, {});
  double most = 0;
  for (const auto& [name, values] : one.values)
    if (changed.values.count(name)) most = std::max(most, difference(changed.values.at(name), values));
  EXPECT_GT(most, 10 * kMagnified);
}

TEST(OverRanks, MemoryOfStatesIsDivided) {
  const Outcome one = run({}, {}), four = run({}, {{"fsdp", 4}});
  const auto bytes = [](const Plan& plan) {
    std::int64_t sum = 0;
    for (const auto& [name, type] : plan.persistent_types)
      if (name.starts_with("optimizer/") || name.starts_with("decoder/")) sum += type.bytes();
    return static_cast<double>(sum);
  };
  for (const Plan& plan : four.plans) EXPECT_LE(bytes(plan), 0.27 * bytes(one.plans[0]));
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_EQ(a.values, b.values);
}

// Neither what runs meanwhile, nor when messages come, nor which rank is slow, changes a bit.
TEST(OverRanks, BitsDoNotDependOnTime) {
  const auto jittered = [](std::unique_ptr<hal::Transport> plain) {
    return hal::checked(hal::delayed(std::move(plain), {0.1e-3, 200e6, 0.5e-3}));
  };
  for (const auto& mesh : kMeshes)
    for (const std::int64_t accumulation : {1, 2}) {
      SCOPED_TRACE(Topology(mesh).text() + ", " + std::to_string(accumulation) + " micro-batches");
      const Outcome want = run({.accumulation = accumulation, .overlap = false}, mesh);
      expect_same_bits(run({.accumulation = accumulation}, mesh), want);
      expect_same_bits(run({.accumulation = accumulation, .wrap = jittered, .slow = {{1, 3.0}}}, mesh), want);
    }
}

TEST(OverRanks, BitsOfGradientsInFewerBitsDoNotDependOnTime) {
  Job job{.model = with(tiny_llama(), "decoder.dim", "48"),
          .accumulation = 2,
          .overlap = false,
          .gradient_dtype = kernels::DType::i8};
  Job late = job;
  late.overlap = true;
  late.wrap = [](std::unique_ptr<hal::Transport> plain) {
    return hal::checked(hal::delayed(std::move(plain), {0.1e-3, 200e6, 0.5e-3}));
  };
  for (const auto& mesh : kMeshes) {
    SCOPED_TRACE(Topology(mesh).text());
    expect_same_bits(run(late, mesh), run(job, mesh));
  }
}

// What a plan says is what goes over the transport, to the byte and the message.
TEST(OverRanks, PlannedBytesAreMovedBytes) {
  Meshes meshes = kMeshes;
  meshes.push_back({{"seq", 2}});
  meshes.push_back({{"expert", 2}, {"fsdp", 2}});
  for (const auto& mesh : meshes)
    for (const std::int64_t accumulation : {1, 2}) {
      const int ranks = Topology(mesh).ranks();
      std::vector<hal::TrafficCount> counts(static_cast<std::size_t>(ranks));
      const auto counted = [&](std::unique_ptr<hal::Transport> plain) {
        hal::TrafficCount& count = counts[static_cast<std::size_t>(plain->rank())];
        return hal::counted(std::move(plain), count);
      };
      const Outcome outcome =
          run({.model = of_four_experts(tiny_llama()), .accumulation = accumulation, .wrap = counted}, mesh);
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(Topology(mesh).text() + ", rank " + std::to_string(rank));
        trainer::MovedBytes planned;
        const Plan& plan = outcome.plans[static_cast<std::size_t>(rank)];
        for (const auto& [axes, bytes] : plan.update_moved_bytes()) {
          EXPECT_GT(bytes.out, 0) << axes;
          planned += bytes;
        }
        EXPECT_GT(planned.out, 0);
        const hal::TrafficCount& count = counts[static_cast<std::size_t>(rank)];
        const auto sum = [](const std::vector<hal::Traffic>& traffic) {
          hal::Traffic sum;
          for (const hal::Traffic& one : traffic) {
            sum.bytes += one.bytes;
            sum.messages += one.messages;
          }
          return sum;
        };
        EXPECT_EQ(sum(count.sent), (hal::Traffic{kSteps * planned.messages_out, kSteps * planned.out}));
        EXPECT_EQ(sum(count.received), (hal::Traffic{kSteps * planned.messages_in, kSteps * planned.in}));
      }
    }
}

// A model whose matrices islands divide among them.
layers::CausalLM::Config wide_llama() {
  layers::CausalLM::Config model = tiny_llama();
  layers::set(model, "decoder.dim", "48", trainer::recipe_classes());
  return model;
}

// Every parameter of a plan, from the values of an outcome.
template <typename Visit>
void for_parameters(const Outcome& outcome, const Visit& visit) {
  for (const layers::ParameterInfo& info : outcome.plans[0].parameters) visit(info.path);
}

const std::vector<std::vector<trainer::MeshAxis>> kIslandMeshes{{{"islands", 2}},
                                                                {{"islands", 4}},
                                                                {{"islands", 2}, {"data", 2}},
                                                                {{"islands", 2}, {"fsdp", 2}},
                                                                {{"islands", 2}, {"model", 2}}};

// One step of SGD each, and the mean of it: that is data parallelism.
TEST(OverIslands, ExchangesAfterEveryStepAreDataParallelism) {
  const auto sgd = learner<trainer::Sgd::Config>();
  sgd->clip_norm = 0;
  for (const std::int64_t accumulation : {1, 2}) {
    // Islands count alike, also where their rows have not as many targets.
    Job job{.model = wide_llama(), .learner = sgd, .accumulation = accumulation, .all_targets = true};
    const Outcome one = run(job, {});
    for (const auto& mesh : kIslandMeshes)
      for (const std::int64_t parts : {1, 3}) {
        SCOPED_TRACE(Topology(mesh).text());
        job.outer = {.every = parts, .rate = 1, .momentum = 0, .parts = parts};
        const Outcome got = run(job, mesh);
        double worst = 0;
        for_parameters(one, [&](const std::string& path) {
          worst = std::max(worst, difference(got.values.at(path), one.values.at(path)));
        });
        if (parts == 1) {
          EXPECT_LE(worst, kLosses);
        } else {  // islands differ between the exchanges of a part
          EXPECT_GT(worst, kLosses);
        }
      }
  }
}

// The update of the anchors, from the values of all islands before and after an exchange.
TEST(OverIslands, AnchorsFollowTheIslands) {
  for (const bool nesterov : {true, false})
    for (const kernels::DType dtype : {kernels::DType::f32, kernels::DType::bf16, kernels::DType::i8})
      for (const auto& mesh : kIslandMeshes) {
        if (!nesterov && dtype != kernels::DType::f32) continue;
        SCOPED_TRACE(Topology(mesh).text() + ", " + std::string(hal::to_string(dtype)));
        const auto islands = static_cast<std::size_t>(Topology(mesh).size(AxisName::islands));
        Job job{.model = wide_llama(),
                .outer = {.every = 2, .rate = 0.7, .momentum = 0.9, .nesterov = nesterov, .dtype = dtype},
                .steps = 4};
        const Outcome after = run(job, mesh);
        job.fault = [](Plan& plan) { plan.steps.outer[0].every = 100; };  // no second exchange
        const Outcome before = run(job, mesh);
        int lossy = 0;
        for_parameters(after, [&](const std::string& path) {
          const std::vector<float>&from = before.values.at(path), &to = after.values.at(path),
                &own = before.values.at("island/" + path);
          const std::size_t n = from.size();
          ASSERT_EQ(own.size(), islands * n) << path;
          const auto at = [&](const Outcome& outcome, const std::string& name, std::size_t i) -> double {
            const auto found = outcome.values.find("outer/" + name + "/" + path);
            return found == outcome.values.end() ? 0 : found->second.at(i);
          };
          std::vector<float> wanted(n);
          double largest = 0, lost = 0;
          for (std::size_t i = 0; i < n; ++i) {
            double sum = 0;
            for (std::size_t k = 0; k < islands; ++k) {
              const double d = from[i] - own[k * n + i] + at(before, "error", k * n + i);
              const double error = at(after, "error", k * n + i);
              largest = std::max(largest, std::abs(d));
              lost = std::max(lost, std::abs(error));
              sum += d - error;
              EXPECT_EQ(after.values.at("island/" + path)[k * n + i], to[i]);
            }
            const double mean = sum / static_cast<double>(islands);
            const double m = 0.9 * at(before, "momentum", i) + mean;
            const double step = 0.7 * (nesterov ? mean + 0.9 * m : m) + at(before, "step_error", i);
            wanted[i] = static_cast<float>(from[i] - (step - at(after, "step_error", i)));
          }
          EXPECT_GT(largest, 0) << path;
          EXPECT_LE(difference(to, wanted), 1e-5) << path;
          lossy += lost > 0;
          // Half a step of the largest of a block, or of the value itself.
          EXPECT_LE(lost, largest * (dtype == kernels::DType::i8 ? 0.51 / 127 : 0x1p-8)) << path;
        });
        EXPECT_EQ(lossy > 0, dtype != kernels::DType::f32);
      }
}

TEST(OverIslands, TheSameBitsTwice) {
  const Job job{.model = wide_llama(), .outer = {.every = 2, .parts = 2, .dtype = kernels::DType::i8}};
  const std::vector<trainer::MeshAxis> mesh{{"islands", 2}, {"fsdp", 2}};
  EXPECT_EQ(run(job, mesh).values, run(job, mesh).values);
}

TEST(OverIslands, PlannedBytesAreMovedBytes) {
  for (const auto& mesh : kIslandMeshes)
    for (const kernels::DType dtype : {kernels::DType::f32, kernels::DType::i8}) {
      const int ranks = Topology(mesh).ranks();
      std::vector<hal::TrafficCount> counts(static_cast<std::size_t>(ranks));
      const auto counted = [&](std::unique_ptr<hal::Transport> plain) {
        hal::TrafficCount& count = counts[static_cast<std::size_t>(plain->rank())];
        return hal::counted(std::move(plain), count);
      };
      // Each of the parts is exchanged twice: after steps 1 and 3, and after 2 and 4.
      const Outcome outcome = run({.model = wide_llama(),
                                   .wrap = counted,
                                   .outer = {.every = 2, .parts = 2, .dtype = dtype},
                                   .steps = 4},
                                  mesh);
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(Topology(mesh).text() + ", rank " + std::to_string(rank));
        const Plan& plan = outcome.plans[static_cast<std::size_t>(rank)];
        trainer::MovedBytes planned = plan.outer_moved_bytes();
        EXPECT_GT(planned.out, 0);
        planned += plan.outer_moved_bytes();
        for (const auto& [axes, bytes] : plan.update_moved_bytes())
          for (int step = 0; step < 4; ++step) planned += bytes;
        const hal::TrafficCount& count = counts[static_cast<std::size_t>(rank)];
        std::int64_t out = 0, in = 0;
        for (const hal::Traffic& traffic : count.sent) out += traffic.bytes;
        for (const hal::Traffic& traffic : count.received) in += traffic.bytes;
        EXPECT_EQ(out, planned.out);
        EXPECT_EQ(in, planned.in);
      }
    }
}

TEST(OverIslands, PartsAreOfLayers) {
  std::vector<layers::ParameterInfo> infos;
  for (const auto& [path, elements] :
       std::vector<std::pair<std::string, std::int64_t>>{{"decoder/embedding/weight", 90},
                                                         {"decoder/stack/layer0/a", 30},
                                                         {"decoder/stack/layer0/b", 30},
                                                         {"decoder/stack/layer1/a", 60},
                                                         {"decoder/stack/layer2/a", 60},
                                                         {"decoder/norm/weight", 1}}) {
    layers::ParameterInfo info;
    info.path = path;
    info.type = {kernels::DType::f32, {elements}};
    infos.push_back(info);
  }
  using Parts = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(trainer::deal_outer_parts(infos, 1), (Parts{{0, 5, 1, 2, 3, 4}}));
  EXPECT_EQ(trainer::deal_outer_parts(infos, 2), (Parts{{0, 5, 1, 2}, {3, 4}}));
  EXPECT_EQ(trainer::deal_outer_parts(infos, 4), (Parts{{0, 5}, {1, 2}, {3}, {4}}));
  EXPECT_THAT(message_of([&] { trainer::deal_outer_parts(infos, 5); }),
              HasSubstr("a layer for every part; with what is outside of layers, there are 4; found 5"));
}

// Carries out the first exchange of a plan and then none.
void exchange_once(Session& session, hal::Transport& transport) {
  const trainer::Exchange& first = session.plan().steps.at(trainer::Step::train).exchanges.front();
  std::vector<std::byte> bytes(static_cast<std::size_t>(first.sent_bytes + first.received_bytes));
  const auto sent = static_cast<std::size_t>(first.sent_bytes);
  const std::array<std::span<std::byte>, 2> tensors{std::span(bytes).first(sent),
                                                    std::span(bytes).subspan(sent)};
  const trainer::ExchangeLists lists = trainer::lists_of(
      first, session.plan().steps.at(trainer::Step::train).program, catalog(), session.plan().mesh);
  trainer::exchange(transport, session.plan().mesh.group(first.axes), lists.moves, tensors,
                    {0, first.op, first.path}, 60);
}

// A rank that fails, or falls silent, while moves of others are on their way.
TEST(OverRanks, ARankThatEndsAmidMovesEndsTheJob) {
  for (const bool silent : {false, true}) {
    std::vector<std::unique_ptr<hal::Device>> devices;
    for (int rank = 0; rank < 3; ++rank) devices.push_back(build().registry.open("cpu"));
    const auto body = [&](std::unique_ptr<hal::Transport> plain) {
      const std::unique_ptr<hal::Transport> transport = hal::delayed(std::move(plain), {1e-3, 20e6, 0});
      hal::Device& device = *devices[static_cast<std::size_t>(transport->rank())];
      trainer::ComposeOptions options = options_of({}, {{"fsdp", 3}}, transport->rank());
      options.batch = 15;
      Session session(device, catalog(),
                      trainer::compose_training(tiny_llama(), adamw(), options, catalog(), device.info()), {},
                      {transport.get(), silent ? 0.5 : 60});
      trainer::initialize(session, 1);
      if (transport->rank() != 2) return session.run(trainer::Step::train);
      exchange_once(session, *transport);
      if (!silent) throw hal::Error("disk", "must have room", "none");
      std::this_thread::sleep_for(std::chrono::seconds(3));
    };
    const std::string message = message_of([&] { backends::threads::run_ranks(3, body); });
    if (silent)
      EXPECT_THAT(message, testing::AllOf(HasSubstr("all_gather of "), HasSubstr("rank 2 ("),
                                          HasSubstr("must send move"), HasSubstr("within 0.5 s")));
    else
      EXPECT_EQ(message, "disk: must have room; found none");
  }
}

// Prefetched and delayed moves stay what the plan's memory was checked for; all of one region are one message a peer.
TEST(OverRanks, MovesAreFewAndRunWhileCallsCompute) {
  trainer::ComposeOptions options = options_of({}, {{"fsdp", 4}}, 0);
  const auto device = build().registry.open("cpu");
  const Plan plan = trainer::compose_training(tiny_llama(), adamw(), options, catalog(), device->info());
  const trainer::PlannedProgram& planned = plan.steps.at(trainer::Step::train);
  std::size_t collectives = 0, ahead = 0;
  for (const kernels::Call& call : planned.program.calls)
    collectives += catalog().contract(call.op).moves != nullptr;
  for (const trainer::Exchange& exchange : planned.exchanges) ahead += exchange.call - exchange.starts >= 10;
  EXPECT_LE(4 * planned.exchanges.size(), collectives);
  EXPECT_GE(2 * ahead, planned.exchanges.size());
  EXPECT_GT(plan.staging_bytes, 0);
}

TEST(OverRanks, RefusesWhatIsNotBuilt) {
  const auto message = [](std::vector<trainer::MeshAxis> mesh,
                          const std::function<void(trainer::ComposeOptions&)>& edit) {
    return message_of([&] {
      trainer::ComposeOptions options = options_of({}, mesh, 0);
      if (edit) edit(options);
      const auto device = build().registry.open("cpu");
      trainer::compose_training(tiny_llama(), adamw(), options, catalog(), device->info());
    });
  };
  EXPECT_THAT(message({{"seq", 4}}, {}), HasSubstr("the axis seq must divide the "));
  EXPECT_THAT(message({{"pipeline", 2}}, {}),
              HasSubstr("a pipeline of 2 stages needs at least 2 micro-batches"));
  EXPECT_THAT(message({{"pipeline", 4}}, [](auto& options) { options.accumulation = 4; }),
              HasSubstr("the model has"));
  EXPECT_THAT(message({{"islands", 2}, {"pipeline", 2}}, [](auto& options) { options.accumulation = 4; }),
              HasSubstr("islands are not built yet for this axis; found pipeline"));
  EXPECT_THAT(message({{"islands", 3}}, {}), HasSubstr("a multiple of its 3 islands; found 16 rows"));
  EXPECT_THAT(message({{"data", 5}}, {}), HasSubstr("a multiple of its 5 ranks"));
  EXPECT_THAT(message({{"data", 2}},
                      [](auto& options) {
                        options.shares = {4, 5};
                      }),
              HasSubstr("must sum to the 16 rows of a micro-batch"));
  EXPECT_THAT(message({{"data", 2}}, [](auto& options) { options.shares = {16}; }),
              HasSubstr("a share of the rows for each of its 2 places"));
  EXPECT_THAT(message({{"data", 2}}, [](auto& options) { options.param_dtype = kernels::DType::bf16; }),
              HasSubstr("param_dtype=bf16"));
  EXPECT_THAT(message({{"data", 2}},
                      [](auto& options) {
                        options.dtype = kernels::DType::f16;
                        options.gradient_dtype = kernels::DType::i8;
                      }),
              HasSubstr("must be f32 where the loss is scaled"));
}

}  // namespace
}  // namespace meshloom::tests
