// Values in the host's memory: what remat rules send there, where the copies stand, and what a wrong plan is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/elementwise/elementwise.h"
#include "kernels/program/print.h"
#include "kernels/program/verify.h"
#include "kernels/transfer/transfer.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/memory/memory.h"
#include "trainer/compose/passes/memory/remat.h"
#include "trainer/compose/passes/select.h"

namespace meshloom::tests {
namespace {

using hal::MemoryKind;
using kernels::Builder;
using kernels::Phase;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;
using ::testing::HasSubstr;

constexpr std::int64_t kSize = 4096;

// A chain of products, of which the backward pass reads the first two again after a long while.
struct Chain {
  Program program;
  Builder builder{catalog(), program};
  Chain() {
    program.name = "chain";
    builder.path = "l0";
    const Tensor x = builder.input("x", {kernels::DType::f32, {kSize}}, Role::parameter);
    const Tensor a = kernels::silu(x), b = kernels::gelu(a);
    builder.tag(a, "first");
    builder.tag(b, "second");
    Tensor last = b;
    for (int i = 0; i < 20; ++i) last = kernels::silu(last);
    builder.phase = Phase::backward;
    for (int i = 0; i < 20; ++i) last = kernels::silu(last);
    const Tensor out = kernels::mul(kernels::mul(last, b), a);
    builder.output(out);
    builder.name(out, "out");
  }
  std::vector<std::string> ops() const {
    std::vector<std::string> list;
    for (const kernels::Call& call : program.calls) list.push_back(call.op);
    return list;
  }
  void apply(const std::vector<trainer::RematRule>& rules, std::vector<char>* matched = nullptr) {
    program = trainer::rematerialize(std::move(program), catalog(), rules, matched);
    kernels::verify(program, catalog(), "remat");
    program = trainer::schedule_transfers(std::move(program), catalog());
    kernels::verify(program, catalog(), "transfers");
  }
  trainer::Plan plan(const hal::DeviceInfo& device) const {
    trainer::VariantSelector selector(catalog(), device, {});
    trainer::Plan plan;
    plan.device = device.id;
    plan.profile = device.profile.name;
    trainer::plan_memory(plan, {{trainer::Step::train, selector.select(program)}}, catalog(), device);
    return plan;
  }
};

TEST(Transfers, WhatARuleOffloadsGoesThereAndBack) {
  Chain chain;
  std::vector<char> matched;
  chain.apply({{"second", trainer::RematPolicy::offload}, {"none", trainer::RematPolicy::offload}}, &matched);
  EXPECT_EQ(matched, (std::vector<char>{1, 0}));
  const std::vector<kernels::Call>& calls = chain.program.calls;
  std::vector<std::ptrdiff_t> at;
  for (auto it = calls.begin(); it != calls.end(); ++it)
    if (it->op == "transfer") at.push_back(it - calls.begin());
  ASSERT_EQ(at.size(), 2u) << kernels::print(chain.program);
  // gelu is the second call, and is read by the one before the last.
  EXPECT_EQ(at[0], 1 + trainer::kTransferDelay + 1);
  EXPECT_EQ(static_cast<std::ptrdiff_t>(calls.size()) - 2 - at[1], trainer::kTransferAhead);
  EXPECT_EQ(chain.program.value(calls[static_cast<std::size_t>(at[0])].outputs[0]).memory, MemoryKind::host);
}

TEST(Transfers, SmallValuesAndShortWaitsStay) {
  Chain small;
  for (kernels::Value& value : small.program.values) value.type.shape = {kSize / 16};
  for (kernels::Call& call : small.program.calls) call.attrs.set("shape", kernels::Shape{kSize / 16});
  small.apply({{".*", trainer::RematPolicy::offload}});
  EXPECT_THAT(small.ops(), testing::Not(testing::Contains("transfer")));
  Program program;
  Builder builder(catalog(), program);
  const Tensor a = kernels::silu(builder.input("x", {kernels::DType::f32, {kSize}}, Role::parameter));
  builder.phase = Phase::backward;
  const Tensor out = kernels::silu(a);
  builder.output(out);
  builder.name(out, "out");
  const std::string before = kernels::print(program);
  EXPECT_EQ(
      kernels::print(trainer::rematerialize(program, catalog(), {{"**", trainer::RematPolicy::offload}})),
      before);
}

TEST(Transfers, ThePlanHasBothKindsAndARunKeepsTheBits) {
  Chain plain, offloaded;
  offloaded.apply({{"**", trainer::RematPolicy::offload}});
  std::vector<float> numbers(kSize), wanted;
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.001f * static_cast<float>(i) - 2;
  for (const Chain* chain : {&plain, &offloaded}) {
    Bench bench("cpu");
    trainer::Plan plan = chain->plan(bench.device->info());
    trainer::check_memory(plan, catalog());
    if (chain == &offloaded) {
      EXPECT_EQ(plan.host.peak_bytes, 2 * kSize * 4);
    }
    bench.start(std::move(plan));
    EXPECT_EQ(bench.device->allocated_bytes(), bench.session->plan().peak_bytes);
    EXPECT_EQ(bench.device->allocated_bytes(MemoryKind::host), bench.session->plan().host.peak_bytes);
    bench.session->write("x", std::as_bytes(std::span(numbers)));
    bench.session->run(trainer::Step::train);
    const std::vector<float> got = bench.read("out");
    if (wanted.empty()) wanted = got;
    EXPECT_EQ(got, wanted);
  }
}

TEST(Transfers, AValueInTheWrongMemoryIsFound) {
  Chain chain;
  chain.apply({{"**", trainer::RematPolicy::offload}});
  Bench bench("cpu");
  trainer::Plan plan = chain.plan(bench.device->info());
  EXPECT_NO_THROW(trainer::check_memory(plan, catalog()));
  for (trainer::Block& block : plan.blocks)
    if (block.memory == MemoryKind::host) block.memory = MemoryKind::device;
  EXPECT_THAT(message_of([&] { trainer::check_memory(plan, catalog()); }),
              HasSubstr("every value must lie in its kind of memory"));
}

TEST(Transfers, OnlyTheyTouchTheHostsMemory) {
  Program program;
  Builder builder(catalog(), program);
  const Tensor x = builder.input("x", {kernels::DType::f32, {4}}, Role::parameter);
  const Tensor there = kernels::transfer(x, MemoryKind::host);
  const Tensor out = kernels::silu(kernels::transfer(there, MemoryKind::device));
  builder.output(out);
  kernels::verify(program, catalog(), "test");
  Program reads = program;
  reads.calls.back().inputs = {there.id};
  EXPECT_THAT(message_of([&] { kernels::verify(reads, catalog(), "test"); }),
              HasSubstr("only transfer reads a value on the host"));
  Program writes = program;
  writes.value(out.id).memory = MemoryKind::host;
  EXPECT_THAT(message_of([&] { kernels::verify(writes, catalog(), "test"); }),
              HasSubstr("only transfer writes a value on the host"));
  Program elsewhere = program;
  elsewhere.value(there.id).memory = MemoryKind::device;
  EXPECT_THAT(message_of([&] { kernels::verify(elsewhere, catalog(), "test"); }),
              HasSubstr("the result must be in the memory that the call names"));
}

}  // namespace
}  // namespace meshloom::tests
