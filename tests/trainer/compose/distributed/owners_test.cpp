// Updates that need the whole of a parameter are computed by one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels/collective/collective.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/passes/distributed/owners.h"
#include "trainer/learner/adafactor.h"
#include "trainer/learner/muon.h"

namespace meshloom::tests {
namespace {

using kernels::DType;
using kernels::TensorType;
using trainer::AxisName;
using trainer::Owners;
using trainer::Topology;
using Mesh = std::vector<trainer::MeshAxis>;

template <typename Learner>
std::vector<trainer::Plan> plans(const Mesh& mesh) {
  typename Learner::Config learner;
  learner.peak_learning_rate = 1e-2;
  std::vector<trainer::Plan> plans;
  const std::unique_ptr<hal::Device> device = build().registry.open("cpu");
  trainer::ComposeOptions options = small_options();
  options.batch = 12;
  options.mesh = mesh;
  for (options.rank = 0; options.rank < Topology(mesh).ranks(); ++options.rank)
    plans.push_back(trainer::compose_training(tiny_llama(), learner, options, catalog(), device->info()));
  return plans;
}

// The paths of the products of matrices in the update, each as often as it has some.
std::multiset<std::string> products(const trainer::Plan& plan) {
  std::multiset<std::string> paths;
  for (const auto& [key, planned] : plan.steps.programs)
    for (const kernels::Call& call : planned.program.calls)
      if (call.op == "matmul" && call.phase == kernels::Phase::update) paths.insert(call.path);
  return paths;
}

TEST(OwnersTest, EveryProductOfMuonIsComputedOnOneRank) {
  const std::multiset<std::string> all = products(plans<trainer::Muon>({}).at(0));
  ASSERT_GT(all.size(), 100U);
  for (const Mesh& mesh :
       {Mesh{{"fsdp", 4}}, Mesh{{"data", 2}, {"fsdp", 2}}, Mesh{{"data", 4}}, Mesh{{"seq", 2}}}) {
    SCOPED_TRACE(Topology(mesh).text());
    std::multiset<std::string> found;
    std::map<std::string, int> ranks;  // that have products of a path
    for (const trainer::Plan& plan : plans<trainer::Muon>(mesh)) {
      const std::multiset<std::string> own = products(plan);
      EXPECT_FALSE(own.empty());
      EXPECT_LT(own.size(), all.size() * 2 / 3) << "they are shared out";
      found.insert(own.begin(), own.end());
      for (const std::string& path : std::set<std::string>(own.begin(), own.end())) ++ranks[path];
    }
    EXPECT_EQ(found, all);
    for (const auto& [path, count] : ranks) EXPECT_EQ(count, 1) << path;
  }
}

// A matrix that is cut is multiplied in parts by all.
TEST(OwnersTest, NobodyOwnsWhatIsCut) {
  for (const trainer::Plan& plan : plans<trainer::Muon>({{"fsdp", 2}, {"model", 2}}))
    for (const auto& [key, planned] : plan.steps.programs)
      for (const kernels::Call& call : planned.program.calls)
        if (call.op == "gather_to") {
          EXPECT_THAT(call.path, testing::Not(testing::HasSubstr("q_proj")));
          EXPECT_THAT(call.path, testing::Not(testing::HasSubstr("down_proj")));
        }
}

// All ranks of a group must have the same exchanges, in one order, although they compute otherwise.
TEST(OwnersTest, RanksHaveTheSameExchanges) {
  const auto exchanges = [](const trainer::Plan& plan) {
    std::vector<std::string> list;
    for (const auto& [key, planned] : plan.steps.programs)
      for (const trainer::Exchange& exchange : planned.exchanges)
        list.push_back(exchange.op + " " + exchange.path + " " + std::to_string(exchange.calls));
    return list;
  };
  for (const Mesh& mesh :
       {Mesh{{"fsdp", 3}}, Mesh{{"data", 2}, {"fsdp", 2}}, Mesh{{"data", 2}, {"seq", 2}}}) {
    SCOPED_TRACE(Topology(mesh).text());
    for (const std::vector<trainer::Plan>& all :
         {plans<trainer::Muon>(mesh), plans<trainer::Adafactor>(mesh)})
      for (const trainer::Plan& plan : all) EXPECT_EQ(exchanges(plan), exchanges(all[0]));
  }
}

TEST(OwnersTest, WorkIsSharedOut) {
  const Topology mesh({{"data", 2}, {"fsdp", 2}});
  Owners owners(mesh.all(), mesh);
  const TensorType large{DType::f32, {64, 64}}, small{DType::f32, {64, 16}};
  EXPECT_EQ(owners.of("a", large), 0);
  EXPECT_EQ(owners.of("b", small), 1);
  EXPECT_EQ(owners.of("c", small), 2);
  EXPECT_EQ(owners.of("d", small), 3);
  EXPECT_EQ(owners.of("e", small), 1) << "the first of those with the least";
  EXPECT_EQ(owners.of("a", large), 0) << "as before";
  const Topology unlike = mesh.with_shares({1, 1, 1, 5});
  Owners faster(unlike.all(), unlike);
  EXPECT_EQ(faster.of("a", large), 3);
  EXPECT_EQ(faster.of("b", large), 3);
  EXPECT_EQ(faster.of("c", small), 0);
}

TEST(OwnersTest, CanHoldWhatCanBeDealtOut) {
  const Topology mesh({{"data", 2}, {"fsdp", 2}}), one({{"fsdp", 3}}), many({{"data", 512}});
  const Owners owners(mesh.all(), mesh), of_one(one.all(), one), of_many(many.all(), many);
  EXPECT_TRUE(owners.can_hold({DType::f32, {2, 2}}));
  EXPECT_FALSE(owners.can_hold({DType::f32, {3}}));
  EXPECT_FALSE(owners.can_hold({DType::f32, {5}})) << "ranges are unequal, and not in the order of ranks";
  EXPECT_TRUE(of_one.can_hold({DType::f32, {5}}));
  EXPECT_FALSE(of_one.can_hold({DType::i32, {6}}));
  EXPECT_FALSE(of_many.can_hold({DType::f32, {1024}}));
}

TEST(OwnersTest, CollectivesOfARootSayWhatIsWrong) {
  kernels::Program program;
  kernels::Builder builder(catalog(), program);
  const kernels::Tensor x = builder.input("x", {DType::f32, {6}}, kernels::Role::input);
  EXPECT_EQ(kernels::gather_to(x, {"data", 1}, {2, 6}, 1, {8}).shape(), (kernels::Shape{8}));
  EXPECT_EQ(kernels::gather_to(x, {"data", 1}, {2, 6}, 0, {8}).shape(), (kernels::Shape{1})) << "nothing";
  EXPECT_EQ(kernels::scatter_from(x, {"data", 1}, {2, 4}, 1, {4}).shape(), (kernels::Shape{4}));
  EXPECT_EQ(kernels::scatter_from(x, {"data", 0}, {2, 5}, 1, {2}).shape(), (kernels::Shape{2}));
  EXPECT_EQ(message_of([&] {
              kernels::gather_to(x, {"data", 1}, {2, 6}, 2, {8});
            }),
            "gather_to: the root must be one of 2; found 2");
  EXPECT_EQ(message_of([&] {
              kernels::gather_to(x, {"data", 0}, {2, 6}, 1, {8});
            }),
            "gather_to: x must have the elements of its place, 2; found f32(6)");
  EXPECT_EQ(message_of([&] {
              kernels::scatter_from(x, {"data", 1}, {2, 5}, 1, {5});
            }),
            "scatter_from: x must have the parts of all places, 7 elements; found f32(6)");
}

}  // namespace
}  // namespace meshloom::tests
