// Where moves between ranks start and end, and what is one message.
#include "trainer/compose/passes/distributed/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/collective/collective.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/verify.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "tests/message_of.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/exchanges.h"
#include "trainer/compose/memory/memory.h"

namespace meshloom::tests {
namespace {

using kernels::Call;
using kernels::GroupPlace;
using kernels::Phase;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;
using testing::HasSubstr;
using trainer::Exchange;

const kernels::TensorType kMatrix{kernels::DType::f32, {4, 4}};
const trainer::Topology kMesh({{"fsdp", 2}}, 0);

// Three layers of two weights each, of which every rank has a half, and something like their gradients.
struct Layers {
  Program program;
  kernels::Builder builder{catalog(), program};
  Layers() {
    program.name = "layers";
    const GroupPlace group{"fsdp", 0};
    Tensor x = builder.input("x", kMatrix, Role::input);
    std::vector<Tensor> wholes;
    for (int layer = 0; layer < 3; ++layer)
      for (const char* name : {"a", "b"}) {
        builder.path = "stack/layer" + std::to_string(layer) + "/" + name;
        const Tensor part = builder.input(builder.path, {kernels::DType::f32, {8}}, Role::parameter);
        wholes.push_back(kernels::reshape(kernels::all_gather(part, group, {8, 8}, {16}), {4, 4}));
        x = kernels::relu(kernels::matmul(x, wholes.back()));
      }
    std::vector<Tensor> parts;
    builder.phase = Phase::backward;
    for (int i = 5; i >= 0; --i) {
      builder.path = "stack/layer" + std::to_string(i / 2) + (i % 2 ? "/b" : "/a");
      x = kernels::matmul(x, wholes[static_cast<std::size_t>(i)]);
      const Tensor pieces = kernels::all_to_all(kernels::reshape(x, {16}), group, {8, 8, 8, 8}, {2, 8});
      parts.push_back(kernels::reduce_sum(pieces, 1));
    }
    builder.phase = Phase::update;
    builder.path = "learner";
    for (const Tensor part : parts) {
      const Tensor updated = kernels::scale(part, 0.5);
      builder.name(updated, "updated" + std::to_string(updated.id));
      builder.output(updated);
    }
  }
};

// "layer1/a matmul" of a call.
std::string name_of(const Program& program, int call) {
  if (call == static_cast<int>(program.calls.size())) return "end";
  const Call& found = program.calls.at(static_cast<std::size_t>(call));
  return found.path + " " + found.op;
}

TEST(Overlap, GathersStartARegionAheadAndReductionsEndARegionLater) {
  Layers layers;
  const Program program = trainer::overlap_moves(layers.program, catalog());
  kernels::verify(program, catalog(), "overlap");
  ASSERT_EQ(program.calls.size(), layers.program.calls.size());
  const std::vector<Exchange> exchanges = trainer::exchanges_of(program, catalog(), kMesh);
  ASSERT_EQ(exchanges.size(), 6U) << "one per region and direction";
  for (int layer = 0; layer < 3; ++layer) {
    const Exchange& gather = exchanges[static_cast<std::size_t>(layer)];
    const std::string own = "stack/layer" + std::to_string(layer);
    EXPECT_EQ(gather.op, "all_gather");
    EXPECT_EQ(gather.path, own + "/a and 1 more");
    EXPECT_EQ(gather.moved, (trainer::MovedBytes{64, 64, 1, 1})) << "one message each way";
    EXPECT_EQ(gather.sent_bytes, 64);
    EXPECT_EQ(gather.received_bytes, 64);
    if (layer > 1)
      EXPECT_THAT(name_of(program, gather.starts),
                  testing::StartsWith("stack/layer" + std::to_string(layer - 1)));
    else
      EXPECT_EQ(gather.starts, 0);
  }
  // Of layer 2 the gradients are known first; they may take as long as the calls of layer 1.
  const Exchange& reduction = exchanges[3];
  EXPECT_EQ(reduction.op, "all_to_all");
  EXPECT_EQ(name_of(program, reduction.starts), "stack/layer1/b matmul");
  EXPECT_EQ(reduction.path, "stack/layer2/b and 1 more");
  EXPECT_EQ(name_of(program, reduction.call + 2), "stack/layer2/b reduce_sum");
  EXPECT_EQ(name_of(program, reduction.call + 4), "stack/layer0/b matmul");
}

TEST(Overlap, StartsAreVerified) {
  Layers layers;
  Program program = trainer::overlap_moves(layers.program, catalog());
  const auto complaint = [&] { return message_of([&] { kernels::verify(program, catalog(), "planting"); }); };
  ASSERT_EQ(complaint(), "no error");
  const auto reduction = std::find_if(program.calls.begin(), program.calls.end(),
                                      [](const Call& call) { return call.op == "all_to_all"; });
  const int starts = reduction->starts;
  reduction->starts = 3;
  EXPECT_THAT(complaint(), HasSubstr("what a collective moves must be defined before it starts"));
  reduction->starts = static_cast<int>(program.calls.size());
  EXPECT_THAT(complaint(), HasSubstr("in front of its place or before"));
  reduction->starts = starts;
  program.calls.back().starts = 0;
  EXPECT_THAT(complaint(), HasSubstr("only a collective may start before its place"));
}

// Memory of what is on its way is free for others: who reads it later than planned reads something else.
TEST(Overlap, WhatStartsLaterThanPlannedIsSeen) {
  trainer::ComposeOptions options = small_options();
  options.batch = 16;
  options.mesh = {{"fsdp", 4}};
  const auto device = build().registry.open("cpu");
  const trainer::Plan plan =
      trainer::compose_training(tiny_llama(), adamw(), options, catalog(), device->info());
  EXPECT_NO_THROW(trainer::check_memory(plan, catalog()));
  int seen = 0, delayed = 0;
  const std::size_t count = plan.steps.at(trainer::Step::train).program.calls.size();
  for (std::size_t i = 0; i < count; ++i) {
    trainer::Plan broken = plan;
    Call& call = broken.steps.programs.at(trainer::Step::train).program.calls[i];
    if (call.op != "all_to_all" || call.starts < 0) continue;
    call.starts = static_cast<int>(i);
    ++delayed;
    seen += message_of([&] { trainer::check_memory(broken, catalog()); }).find("when it starts") !=
            std::string::npos;
  }
  EXPECT_GT(delayed, 0);
  EXPECT_GT(2 * seen, delayed);
}

// What a rank keeps for itself, gives to several, or does not have at all.
TEST(Exchanges, SendWhatIsTheSameOnce) {
  Program program;
  kernels::Builder builder(catalog(), program);
  const trainer::Topology mesh({{"data", 3}}, 1);
  const Tensor x = builder.input("x", {kernels::DType::f32, {6}}, Role::input);
  const Tensor all = kernels::all_gather(x, {"data", 1}, {2, 6, 0}, {8});
  const Tensor pieces = kernels::all_to_all(x, {"data", 1}, {1, 2, 0, 3, 1, 2, 0, 0, 1}, {3});
  for (const Tensor tensor : {all, pieces}) {
    builder.name(tensor, "y" + std::to_string(tensor.id));
    builder.output(tensor);
  }
  const std::vector<Exchange> exchanges = trainer::exchanges_of(program, catalog(), mesh);
  ASSERT_EQ(exchanges.size(), 2U);
  EXPECT_EQ(exchanges[0].sent_bytes, 24);
  EXPECT_EQ(exchanges[0].received_bytes, 8);
  EXPECT_EQ(exchanges[1].sent_bytes, 24);
  EXPECT_EQ(exchanges[1].received_bytes, 8);
  const auto moved = trainer::moved_bytes(exchanges);
  EXPECT_EQ(moved.at("data"), (trainer::MovedBytes{2 * 24 + 5 * 4, 8 + 8, 4, 2}));
  for (const Exchange& exchange : exchanges) {
    trainer::MovedBytes listed;
    for (const kernels::collective::Move& move :
         trainer::lists_of(exchange, program, catalog(), mesh).moves) {
      EXPECT_EQ(move.count, 1);
      listed +=
          move.out ? trainer::MovedBytes{move.bytes, 0, 1, 0} : trainer::MovedBytes{0, move.bytes, 0, 1};
    }
    EXPECT_EQ(exchange.moved, listed);
  }
}

}  // namespace
}  // namespace meshloom::tests
