// Training over ranks that divide sequences gives the numbers of one rank, however attention is divided.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/compose/distributed/mesh_job.h"
#include "trainer/learner/muon.h"
#include "trainer/learner/sgd.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::Topology;

// Tokens over ranks, in every way to divide attention. A rank has one head of keys at most where the axis model takes the other.
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

}  // namespace
}  // namespace meshloom::tests
