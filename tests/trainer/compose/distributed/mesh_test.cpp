// Training over the ranks of a mesh gives the numbers of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backends/threads/backend.h"
#include "hal/wrappers/checked_transport.h"
#include "hal/wrappers/counted_transport.h"
#include "hal/wrappers/delayed_transport.h"
#include "tests/trainer/compose/distributed/mesh_job.h"
#include "trainer/learner/adafactor.h"
#include "trainer/learner/muon.h"
#include "trainer/learner/sgd.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::Plan;
using trainer::Session;
using trainer::Topology;

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
