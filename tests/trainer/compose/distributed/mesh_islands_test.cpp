// Islands: ranks that train apart between exchanges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "hal/wrappers/counted_transport.h"
#include "tests/trainer/compose/distributed/mesh_job.h"
#include "trainer/compose/passes/distributed/islands.h"
#include "trainer/config/trainer_config.h"
#include "trainer/learner/sgd.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::AxisName;
using trainer::Plan;
using trainer::Topology;

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

}  // namespace
}  // namespace meshloom::tests
