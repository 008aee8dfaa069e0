// Partition, fusion, rematerialization, donations and selection on small programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/print.h"
#include "kernels/program/verify.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "tests/trainer/compose/sketch.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/distributed/partition.h"
#include "trainer/compose/passes/memory/donations.h"
#include "trainer/compose/passes/memory/remat.h"
#include "trainer/compose/passes/select.h"

namespace meshloom::tests {
namespace {

using kernels::Builder;
using kernels::Phase;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;
using ::testing::HasSubstr;

TEST(Partition, MeshOfOneIsTheIdentity) {
  Sketch s;
  s.builder.output(kernels::matmul(s.input("a", {4, 3}), s.input("b", {3, 5})));
  const std::string before = kernels::print(s.program);
  EXPECT_EQ(
      before,
      kernels::print(
          trainer::partition(s.program, catalog(), trainer::Topology({{"data", 1}, {"model", 1}})).program));
}

TEST(Fuse, ElementwiseChainsBecomeOneCall) {
  Sketch s;
  const Tensor x = s.input("x", {6, 4}), y = s.input("y", {6, 4}), b = s.input("b", {4});
  const Tensor z = kernels::silu(kernels::add(kernels::mul(x, y), b));
  s.builder.output(kernels::mul(z, kernels::scale(x, 0.5)));
  s.fuse();
  EXPECT_EQ(s.program.calls.size(), 1u) << kernels::print(s.program);
}

TEST(Fuse, OneValueReadTwiceByOneCall) {
  Sketch s;
  const Tensor y = kernels::silu(s.input("x", {4}));
  s.builder.output(kernels::mul(y, y));
  s.fuse();
  EXPECT_EQ(s.program.calls.size(), 1u) << kernels::print(s.program);
  EXPECT_EQ(s.program.calls[0].inputs.size(), 1u);
}

TEST(Fuse, ChainsStopAtTheOperandLimit) {
  Sketch s;
  Tensor sum = s.input("x0", {4});
  for (int i = 1; i < 12; ++i) sum = kernels::add(sum, s.input("x" + std::to_string(i), {4}));
  s.builder.output(sum);
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 2) << kernels::print(s.program);
}

TEST(Fuse, ValuesWithSeveralReadersAreNotComputedTwice) {
  Sketch s;
  const Tensor x = s.input("x", {4}), y = kernels::silu(x);
  s.builder.output(kernels::reduce_sum(y, 0));
  s.builder.output(kernels::relu(y));
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 2);
}

TEST(Fuse, CopiesAndDeadCallsGo) {
  Sketch s;
  const Tensor x = s.input("x", {4});
  kernels::silu(x);
  const Tensor copy = kernels::elementwise({x}, kernels::Expr::input(0));
  s.builder.output(kernels::reduce_sum(kernels::reshape(kernels::reshape(copy, {2, 2}), {4}), 0));
  s.fuse();
  EXPECT_EQ(s.program.calls.size(), 1u) << kernels::print(s.program);
}

TEST(Fuse, DoesNotReadStorageThatWasOverwritten) {
  // y reads x; x is overwritten; only then is y used. Fusing y into its reader would read the new x.
  Sketch s;
  const Tensor x = s.input("x", {4}), z = s.input("z", {4});
  const Tensor y = kernels::silu(x);
  const Tensor next = kernels::mul(x, z);
  s.builder.donate(x, next);
  s.builder.output(next);
  s.builder.output(kernels::mul(y, next));
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 3) << kernels::print(s.program);
}

TEST(Settle, CopiesWhatIsReadLater) {
  Sketch s;
  const Tensor x = s.input("state", {4}, Role::state), z = s.input("z", {4});
  const Tensor next = kernels::mul(x, z);
  s.builder.donate(x, next);
  s.builder.output(next);
  s.builder.output(kernels::reduce_sum(x, 0));
  EXPECT_THAT(message_of([&] { kernels::verify(s.program, catalog(), "test"); }), HasSubstr("overwritten"));
  s.program = trainer::legalize_donations(s.program, catalog());
  kernels::verify(s.program, catalog(), "donations");
  EXPECT_EQ(s.program.calls.back().op, "elementwise");
  EXPECT_EQ(s.program.donations[0].output, s.program.calls.back().outputs[0]);
  EXPECT_EQ(s.program.outputs[0], s.program.calls.back().outputs[0]);
}

TEST(Settle, LeavesInPlaceUpdatesAlone) {
  Sketch s;
  const Tensor x = s.input("state", {4}, Role::state), z = s.input("z", {4});
  const Tensor next = kernels::mul(x, z);
  s.builder.donate(x, next);
  s.builder.output(next);
  const std::string before = kernels::print(s.program);
  EXPECT_EQ(before, kernels::print(trainer::legalize_donations(s.program, catalog())));
}

TEST(Remat, Regions) {
  EXPECT_EQ(trainer::region_of("decoder/layer12/attention/q_proj"), "decoder/layer12");
  EXPECT_EQ(trainer::region_of("a/layer1/b/expert3"), "a/layer1");
  EXPECT_EQ(trainer::region_of("decoder/norm"), "");
  EXPECT_EQ(trainer::region_of(""), "");
}

// Two regions; region l0 makes a -> b -> c, its backward reads a, b and c.
struct TwoRegions : Sketch {
  Tensor a, b, c;
  TwoRegions() {
    const Tensor x = input("x", {4});
    builder.path = "l0";
    a = kernels::silu(x), b = kernels::relu(a), c = kernels::gelu(b);
    builder.tag(a, "first");
    builder.tag(b, "second");
    builder.path = "l1";
    const Tensor d = kernels::reduce_sum(c, 0);
    builder.phase = Phase::backward;
    const Tensor e = kernels::mul(c, d);
    builder.path = "l0";
    const Tensor f = kernels::mul(e, b);
    builder.output(kernels::mul(f, a));
  }
  std::vector<std::string> recomputed() const {
    std::vector<std::string> list;
    for (const kernels::Call& call : program.calls)
      if (call.phase == Phase::recompute && call.path == "l0") list.push_back(call.op);
    return list;
  }
  void apply(const std::vector<trainer::RematRule>& rules, std::vector<char>* matched = nullptr) {
    program = trainer::rematerialize(program, catalog(), rules, matched);
    kernels::verify(program, catalog(), "remat");
  }
};

TEST(Remat, NoRuleSavesEverything) {
  TwoRegions s;
  const std::string before = kernels::print(s.program);
  s.apply({});
  EXPECT_EQ(before, kernels::print(s.program));
}

TEST(Remat, ClonesWhatIsNeededFromWhatIsSaved) {
  TwoRegions s;
  std::vector<char> matched;
  s.apply({{"first", trainer::RematPolicy::save},
           {".*", trainer::RematPolicy::recompute},
           {"nothing", trainer::RematPolicy::recompute}},
          &matched);
  EXPECT_EQ(s.recomputed().size(), 1u) << kernels::print(s.program);  // b; c crosses into l1 and is saved
  EXPECT_EQ(matched, (std::vector<char>{1, 1, 0}));
  TwoRegions t;
  t.apply({{".*", trainer::RematPolicy::recompute}});
  EXPECT_EQ(t.recomputed().size(), 2u) << kernels::print(t.program);
}

TEST(Remat, ClonesStandBeforeTheirRegionsBackward) {
  TwoRegions s;
  s.apply({{".*", trainer::RematPolicy::recompute}});
  const std::vector<kernels::Call>& calls = s.program.calls;
  const auto first = std::find_if(calls.begin(), calls.end(), [](const kernels::Call& c) {
    return c.phase == Phase::recompute && c.path == "l0";
  });
  const auto backward = std::find_if(calls.begin(), calls.end(), [](const kernels::Call& c) {
    return c.phase == Phase::backward && c.path == "l0";
  });
  EXPECT_EQ(backward - first, 2) << kernels::print(s.program);
  EXPECT_EQ(std::prev(first)->path, "l1");
}

TEST(Remat, BadPatternIsNamed) {
  TwoRegions s;
  EXPECT_THAT(message_of([&] {
                s.apply({{"(", trainer::RematPolicy::recompute}});
              }),
              HasSubstr("remat rule 1"));
}

// --- selection, over a catalog with planted variants -------------------------------------------------------

kernels::Fit only_even(const kernels::CallView& call, const hal::DeviceInfo&) {
  return call.outputs[0].dim(0) % 2 ? kernels::Fit::no("rows must be even")
                                    : kernels::Fit::yes({{"tile", 2}}, 64);
}
int asked = 0;
kernels::Fit counting(const kernels::CallView&, const hal::DeviceInfo&) {
  ++asked;
  return kernels::Fit::yes();
}
void no_encode(const kernels::EncodeArgs&) {}

struct Selection : ::testing::Test {
  kernels::Catalog planted;
  hal::DeviceInfo device;
  Sketch s;
  Selection() {
    kernels::add_contracts(planted);
    const auto add = [&](const char* name, std::vector<hal::ProfileKind> kinds, auto fit) {
      planted.add(kernels::Variant{.op = "matmul",
                                   .backend = "test",
                                   .name = name,
                                   .kinds = std::move(kinds),
                                   .about = "for tests",
                                   .fit = fit,
                                   .encode = no_encode});
    };
    add("tiled", {hal::ProfileKind::gpu}, only_even);
    add("wide", {hal::ProfileKind::tpu}, only_even);
    add("naive", {}, counting);
    device.backend = device.id = "test";
    device.profile = hal::find_profile("h100");
    asked = 0;
    const auto product = [&](const std::string& path, std::int64_t rows) {
      s.builder.path = path;
      s.builder.output(kernels::matmul(s.input("a" + path, {rows, 3}), s.input("b" + path, {3, 5})));
    };
    product("m/even", 4);
    product("m/odd", 5);
    product("m/odd_too", 5);
  }
  std::vector<std::string> chosen(const std::vector<trainer::KernelRule>& rules = {}) {
    trainer::VariantSelector selector(planted, device, rules);
    const Program program = selector.select(s.program);
    refusals = selector.refusals();
    unmatched = selector.unmatched_rules();
    idle = selector.no_op_rules();
    std::vector<std::string> names;
    for (const kernels::Call& call : program.calls) names.push_back(call.choice->variant->name);
    return names;
  }
  std::vector<trainer::Refusal> refusals;
  std::vector<std::string> unmatched, idle;
};

TEST_F(Selection, KindThenAny) {
  EXPECT_EQ(chosen(), (std::vector<std::string>{"tiled", "naive", "naive"}));
  EXPECT_EQ(asked, 1) << "fit is asked once per distinct call";
  ASSERT_EQ(refusals.size(), 2u);
  EXPECT_EQ(refusals[0].reason, "rows must be even");
  EXPECT_EQ(refusals[1].variant, "wide");
  EXPECT_THAT(refusals[1].reason, HasSubstr("tpu"));
}

TEST_F(Selection, OtherProfileOtherFamily) {
  device.profile = hal::find_profile("tpu-v5e");
  EXPECT_EQ(chosen(), (std::vector<std::string>{"wide", "naive", "naive"}));
}

TEST_F(Selection, RulesWinAndLaterOnesMore) {
  EXPECT_EQ(chosen({{"matmul", ".*", "reference"}, {"matmul", "m/odd.*", "naive"}}),
            (std::vector<std::string>{"reference", "naive", "naive"}));
  EXPECT_EQ(idle.size(), 1u);
  EXPECT_THAT(idle[0], HasSubstr("m/odd.*"));
}

TEST_F(Selection, ARuleThatDoesNotFitIsAnErrorWithItsReason) {
  const std::string text = message_of([&] { chosen({{"matmul", ".*", "tiled"}}); });
  EXPECT_THAT(text, HasSubstr("rows must be even"));
  EXPECT_THAT(text, HasSubstr("m/odd"));
}

TEST_F(Selection, AnUnknownVariantIsAnErrorWithASuggestion) {
  EXPECT_THAT(message_of([&] { chosen({{"matmul", ".*", "tilde"}}); }), HasSubstr("did you mean 'tiled'"));
  EXPECT_THAT(message_of([&] { chosen({{"matmull", ".*", "tiled"}}); }), HasSubstr("must match an op"));
}

TEST_F(Selection, ARuleThatMatchesNothingIsSaid) {
  chosen({{"matmul", "nowhere", "naive"}});
  ASSERT_EQ(unmatched.size(), 1u);
  EXPECT_THAT(unmatched[0], HasSubstr("nowhere"));
}

}  // namespace
}  // namespace meshloom::tests
