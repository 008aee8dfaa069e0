// Partition, fusion, rematerialization, donations and selection on small programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "kernels/core/rng.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/print.h"
#include "kernels/program/verify.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/softmax/softmax.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/donations.h"
#include "trainer/compose/passes/fuse.h"
#include "trainer/compose/passes/partition.h"
#include "trainer/compose/passes/remat.h"
#include "trainer/compose/passes/select.h"

namespace meshloom::tests {
namespace {

using kernels::Builder;
using kernels::Phase;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;
using ::testing::HasSubstr;

struct Sketch {
  Program program;
  Builder builder{catalog(), program};

  Tensor input(const std::string& name, kernels::Shape shape, Role role = Role::parameter) {
    return builder.input(name, {kernels::DType::f32, std::move(shape)}, role);
  }
  int count(const std::string& op) const {
    return static_cast<int>(std::count_if(program.calls.begin(), program.calls.end(),
                                          [&](const kernels::Call& call) { return call.op == op; }));
  }
  void fuse() {
    program = trainer::fuse(std::move(program), catalog());
    kernels::verify(program, catalog(), "fuse");
  }
};

TEST(Partition, MeshOfOneIsTheIdentity) {
  Sketch s;
  s.builder.output(kernels::matmul(s.input("a", {4, 3}), s.input("b", {3, 5})));
  const std::string before = kernels::print(s.program);
  EXPECT_EQ(
      before,
      kernels::print(
          trainer::partition(s.program, catalog(), trainer::Topology({{"data", 1}, {"model", 1}})).program));
}

TEST(Fuse, BiasResidualAndActivationJoinTheirMatmul) {
  Sketch s;
  const Tensor x = s.input("x", {6, 4}), w = s.input("w", {4, 4}), b = s.input("b", {4});
  const Tensor h = kernels::gelu(kernels::add(kernels::matmul(x, w), b));
  s.builder.output(kernels::add(x, kernels::matmul(h, w)));
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 0) << kernels::print(s.program);
  EXPECT_EQ(s.count("matmul"), 2);
}

TEST(Fuse, PreActivationThatIsNeededStays) {
  Sketch s;
  const Tensor x = s.input("x", {6, 4}), w = s.input("w", {4, 4});
  const Tensor pre = kernels::matmul(x, w);
  s.builder.output(kernels::gelu(pre));
  s.builder.output(kernels::reduce_sum(pre, 1));
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 1);
}

TEST(Fuse, SumsOfProductsChain) {
  Sketch s;
  const Tensor x = s.input("x", {6, 4}), w = s.input("w", {4, 4}), v = s.input("v", {4, 4}),
               u = s.input("u", {4, 4});
  const Tensor sum =
      kernels::add(kernels::add(kernels::matmul(x, w), kernels::matmul(x, v)), kernels::matmul(x, u));
  s.builder.output(sum);
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 0) << kernels::print(s.program);
  EXPECT_EQ(s.count("matmul"), 3);
}

TEST(Fuse, LargeInputsAreNotKeptForASum) {
  // The product could only move down to the sum, which would keep its long inputs alive meanwhile.
  const auto sums_left = [](std::int64_t length) {
    Sketch s;
    const Tensor a = s.input("a", {4, length}), b = s.input("b", {length, 4});
    const Tensor product = kernels::matmul(kernels::relu(a), kernels::relu(b));
    const Tensor other = kernels::silu(s.input("c", {4, 4}));
    s.builder.output(kernels::reduce_sum(other, 0));
    s.builder.output(kernels::add(product, other));
    s.fuse();
    return s.count("elementwise") - 3;
  };
  EXPECT_EQ(sums_left(100), 1);
  EXPECT_EQ(sums_left(1), 0);
}

TEST(Fuse, ResidualReachesThroughReshapes) {
  Sketch s;
  const Tensor x = s.input("x", {2, 3, 4}), w = s.input("w", {4, 4});
  const Tensor y = kernels::reshape(kernels::matmul(kernels::reshape(x, {6, 4}), w), {2, 3, 4});
  s.builder.output(kernels::add(x, y));
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 0) << kernels::print(s.program);
}

TEST(Fuse, GradientsOfAnEmbeddingAddToTheOtherPart) {
  for (const bool later : {false, true}) {
    Sketch s;
    const Tensor ids = s.builder.input("ids", {kernels::DType::i32, {6}}, Role::input);
    const Tensor dy = s.input("dy", {6, 4}), a = s.input("a", {9, 5}), b = s.input("b", {5, 4});
    Tensor head, sum;
    const auto embedding = [&] {
      sum = s.builder.call1("embedding_grad", {ids, dy}, {{"rows", std::int64_t{9}}});
    };
    if (later) embedding();
    head = kernels::matmul(a, b);
    if (!later) embedding();
    s.builder.output(kernels::add(head, sum));
    s.fuse();
    EXPECT_EQ(s.count("elementwise"), 0) << kernels::print(s.program);
    // The later of both adds the result of the other.
    EXPECT_EQ(s.program.calls.back().op, later ? "matmul" : "embedding_grad");
    EXPECT_TRUE(s.program.calls.back().attrs.flag("residual"));
  }
  // It has no other epilogue.
  Sketch s;
  const Tensor ids = s.builder.input("ids", {kernels::DType::i32, {6}}, Role::input);
  const Tensor dy = s.input("dy", {6, 4}), bias = s.input("bias", {4});
  const Tensor sum = s.builder.call1("embedding_grad", {ids, dy}, {{"rows", std::int64_t{9}}});
  s.builder.output(kernels::gelu(kernels::add(sum, bias)));
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 1) << kernels::print(s.program);
}

// Gradients of norms of (6, 4), and what a residual is made of.
struct NormSketch : Sketch {
  std::string op;
  Tensor x, w, dy, residual;

  explicit NormSketch(std::string norm, kernels::DType dtype = kernels::DType::f32) : op(std::move(norm)) {
    x = given("x", dtype);
    w = input("w", {4});
    dy = given("dy", dtype);
    residual = given("residual", dtype);
  }
  Tensor given(const std::string& name, kernels::DType dtype) {
    return builder.input(name, {dtype, {6, 4}}, Role::input);
  }
  // dx, dw and, of a layer_norm, db.
  std::vector<Tensor> gradients(Tensor of, Tensor by) {
    if (op == "rms_norm_grad") return builder.call(op, {of, w, rows("rstd"), by});
    return builder.call(op, {of, w, rows("mean"), rows("rstd"), by});
  }
  std::vector<Tensor> gradients() { return gradients(x, dy); }
  // The values of the outputs, of inputs that are made up.
  std::vector<kernels::HostTensor> values() const {
    Memory memory;
    std::uint64_t seed = 1;
    for (const kernels::ValueId id : program.inputs) {
      kernels::HostTensor tensor(program.value(id).type);
      kernels::fill_uniform({tensor.type, tensor.data.data()}, seed++, -1, 1);
      memory.emplace(program.value(id).name, std::move(tensor));
    }
    const std::vector<kernels::HostTensor> all = interpret(program, catalog(), memory);
    std::vector<kernels::HostTensor> results;
    for (const kernels::ValueId id : program.outputs) results.push_back(all[static_cast<std::size_t>(id)]);
    return results;
  }
  // The sums that are left over. Outputs must be what they were.
  int sums_left() {
    const std::vector<kernels::HostTensor> before = values();
    fuse();
    const std::vector<kernels::HostTensor> after = values();
    for (std::size_t o = 0; o < before.size(); ++o)
      for (std::int64_t i = 0; i < before[o].type.elements(); ++i)
        EXPECT_NEAR(before[o].as<float>()[i], after[o].as<float>()[i], 1e-5) << o << " " << i;
    return count("elementwise");
  }

 private:
  Tensor rows(const std::string& name) { return input(name, {6}); }
};
constexpr std::array kGradientsOfNorms{"rms_norm_grad", "layer_norm_grad"};

TEST(Fuse, GradientsOfNormsAddTheResiduals) {
  for (const std::string op : kGradientsOfNorms)
    for (const bool first : {false, true}) {
      NormSketch s(op);
      const std::vector<Tensor> gradients = s.gradients();
      s.builder.output(first ? kernels::add(gradients[0], s.residual)
                             : kernels::add(s.residual, gradients[0]));
      for (std::size_t o = 1; o < gradients.size(); ++o) s.builder.output(gradients[o]);
      EXPECT_EQ(s.sums_left(), 0) << kernels::print(s.program);
      ASSERT_EQ(s.program.calls.size(), 1u);
      EXPECT_TRUE(s.program.calls[0].attrs.flag("residual"));
      EXPECT_EQ(s.program.calls[0].inputs.back(), s.residual.id);
      EXPECT_EQ(s.program.calls[0].outputs.size(), gradients.size());
    }
}

TEST(Fuse, GradientsOfNormsAddResidualsThroughReshapesAndOneBehindAnother) {
  for (const std::string op : kGradientsOfNorms) {
    NormSketch s(op);
    const Tensor deep = s.input("deep", {2, 3, 4});
    const Tensor sum = kernels::add(deep, kernels::reshape(s.gradients()[0], {2, 3, 4}));
    s.builder.output(
        kernels::add(sum, kernels::reshape(s.gradients(kernels::relu(s.x), s.dy)[0], {2, 3, 4})));
    EXPECT_EQ(s.sums_left(), 1) << kernels::print(s.program);  // the relu
    EXPECT_EQ(s.count(op), 2);
  }
}

TEST(Fuse, SumsOfANormsGradientThatStay) {
  for (const std::string op : kGradientsOfNorms) {
    SCOPED_TRACE(op);
    const auto left = [&](const auto& build) {
      NormSketch s(op);
      build(s);
      return s.sums_left();
    };
    // Its own value is needed, too.
    EXPECT_EQ(left([](NormSketch& s) {
                const Tensor dx = s.gradients()[0];
                s.builder.output(kernels::add(dx, s.residual));
                s.builder.output(kernels::reduce_sum(dx, 1));
              }),
              1);
    EXPECT_EQ(left([](NormSketch& s) {
                const Tensor dx = s.gradients()[0];
                s.builder.output(kernels::add(dx, s.residual));
                s.builder.output(dx);
              }),
              1);
    // A second residual, which a third call adds.
    EXPECT_EQ(left([](NormSketch& s) {
                const Tensor other = s.given("other", kernels::DType::f32);
                s.builder.output(kernels::add(kernels::add(s.gradients()[0], s.residual), other));
              }),
              1);
    // The weight's gradient is not what a residual is added to, a vector is none, and there is no other epilogue.
    EXPECT_EQ(
        left([](NormSketch& s) { s.builder.output(kernels::add(s.gradients()[1], s.input("sums", {4}))); }),
        1);
    EXPECT_EQ(
        left([](NormSketch& s) { s.builder.output(kernels::add(s.gradients()[0], s.input("bias", {4}))); }),
        1);
    EXPECT_EQ(left([](NormSketch& s) { s.builder.output(kernels::silu(s.gradients()[0])); }), 1);
    // Another phase.
    EXPECT_EQ(left([](NormSketch& s) {
                const Tensor dx = s.gradients()[0];
                s.builder.phase = Phase::update;
                s.builder.output(kernels::add(dx, s.residual));
              }),
              1);
  }
}

TEST(Fuse, ANormsGradientKeepsTheDtypeOfTheSum) {
  for (const bool wide : {false, true}) {
    NormSketch s("rms_norm_grad", kernels::DType::bf16);
    const Tensor dx = s.gradients()[0];
    s.builder.output(s.builder.call1("elementwise", {dx, s.residual},
                                     {{"shape", kernels::Shape{6, 4}},
                                      {"expr", std::string("add(x0,x1)")},
                                      {"dtype", std::string(wide ? "f32" : "bf16")}}));
    s.fuse();
    EXPECT_EQ(s.count("elementwise"), wide ? 1 : 0) << kernels::print(s.program);
    EXPECT_EQ(s.program.value(s.program.outputs[0]).type.dtype,
              wide ? kernels::DType::f32 : kernels::DType::bf16);
  }
}

TEST(Fuse, ANormsGradientMovesDownWhereNothingElseWaitsForIt) {
  enum class Case { free, weight_is_read, weight_is_output, residual_needs_weight, inputs_end };
  const auto left = [](const std::string& op, Case which) {
    NormSketch s(op);
    std::vector<Tensor> gradients =
        which == Case::inputs_end ? s.gradients(kernels::relu(s.x), kernels::relu(s.dy)) : s.gradients();
    if (which == Case::weight_is_read) s.builder.output(kernels::reduce_sum(gradients[1], 0));
    Tensor late = kernels::softmax(s.residual).y;
    if (which == Case::residual_needs_weight)
      late = kernels::matmul(s.input("column", {6, 1}), kernels::reshape(gradients[1], {1, 4}));
    if (which == Case::residual_needs_weight) late = kernels::softmax(late).y;
    s.builder.output(kernels::reduce_sum(late, 0));
    s.builder.output(kernels::add(gradients[0], late));
    if (which == Case::weight_is_output) s.builder.output(gradients[1]);
    if (which == Case::free) s.builder.output(kernels::reduce_sum(gradients[1], 0));
    return s.sums_left() - (which == Case::inputs_end ? 2 : 0);
  };
  for (const std::string op : kGradientsOfNorms) {
    SCOPED_TRACE(op);
    EXPECT_EQ(left(op, Case::free), 0);
    EXPECT_EQ(left(op, Case::weight_is_read), 1);
    EXPECT_EQ(left(op, Case::weight_is_output), 1);
    EXPECT_EQ(left(op, Case::residual_needs_weight), 1);
    EXPECT_EQ(left(op, Case::inputs_end), 1);
  }
}

// The gradient of a norm over one row, as a vector, may meet the weight's, which the same call makes.
TEST(Fuse, TheWeightsGradientOfTheSameNormIsNoResidual) {
  Sketch s;
  const Tensor x = s.input("x", {1, 4}), w = s.input("w", {4}), rstd = s.input("rstd", {1}),
               dy = s.input("dy", {1, 4});
  const std::vector<Tensor> gradients = s.builder.call("rms_norm_grad", {x, w, rstd, dy});
  s.builder.output(kernels::add(kernels::reshape(gradients[0], {4}), gradients[1]));
  s.fuse();  // verifies the program
  EXPECT_EQ(s.count("elementwise"), 1) << kernels::print(s.program);
}

TEST(Fuse, ANormsGradientDoesNotOverwriteWhatIsStillRead) {
  for (const bool read_before : {false, true}) {
    NormSketch s("rms_norm_grad");
    const Tensor state = s.input("state", {6, 4}, Role::state);
    const auto read = [&] { s.builder.output(kernels::reduce_sum(state, 0)); };
    if (read_before) read();
    const Tensor dx = s.gradients()[0];
    if (!read_before) read();
    const Tensor sum = kernels::add(dx, s.residual);
    s.builder.donate(state, sum);
    s.fuse();
    EXPECT_EQ(s.count("elementwise"), read_before ? 0 : 1) << kernels::print(s.program);
  }
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
