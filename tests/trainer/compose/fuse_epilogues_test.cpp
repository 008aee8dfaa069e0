// What ends as an epilogue of the call before it.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "kernels/block_quantized/block_quantized.h"
#include "kernels/core/rng.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/nf4_matmul/nf4_matmul.h"
#include "kernels/program/print.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/softmax/softmax.h"
#include "tests/trainer/compose/sketch.h"

namespace meshloom::tests {
namespace {

using kernels::Phase;
using kernels::Role;
using kernels::Tensor;

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

// Products with quantized weights of (4, 8) or (8, 8).
struct QuantizedSketch : Sketch {
  Tensor nf4(Tensor x, const std::string& name, bool trans_b = true) {
    const Tensor codes = builder.input(name, {kernels::DType::u8, {8, 4}}, Role::parameter);
    return kernels::nf4_matmul(x, codes, input(name + "_scales", {8, 1}),
                               {.columns = 8, .block = 8, .trans_b = trans_b});
  }
  Tensor blocks(Tensor x, const std::string& name) {
    const Tensor w = builder.input(name, {kernels::DType::u8, {32, 34}}, Role::parameter);
    return kernels::block_quantized_matmul(x, w, {.format = "q8_0", .columns = 32});
  }
};

TEST(Fuse, ProductsWithQuantizedWeightsAddResiduals) {
  QuantizedSketch s;
  const Tensor x = s.input("x", {6, 8}), wide = s.input("wide", {6, 32});
  s.builder.output(kernels::add(x, s.nf4(x, "w")));
  s.builder.output(kernels::add(s.blocks(wide, "v"), wide));
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 0) << kernels::print(s.program);
  for (const kernels::Call& call : s.program.calls) {
    EXPECT_TRUE(call.attrs.flag("residual")) << call.op;
    EXPECT_EQ(call.inputs.back(), call.op == "nf4_matmul" ? x.id : wide.id);
  }
}

// As in the backward pass of adapted layers: the sum of the gradients of an input that several of them read.
TEST(Fuse, SumsOfProductsOfQuantizedWeightsAndAdaptersChain) {
  QuantizedSketch s;
  const Tensor x = s.input("x", {6, 8}), a = s.input("a", {6, 2}), b = s.input("b", {2, 8});
  Tensor sum = s.nf4(x, "w0", false);
  for (const std::string name : {"w1", "w2"}) {
    sum = kernels::add(sum, kernels::matmul(a, b));
    sum = kernels::add(sum, s.nf4(x, name, false));
  }
  s.builder.output(sum);
  s.fuse();
  EXPECT_EQ(s.count("elementwise"), 0) << kernels::print(s.program);
  EXPECT_EQ(s.count("nf4_matmul"), 3);
}

TEST(Fuse, SumsOfAProductWithQuantizedWeightsThatStay) {
  const auto left = [](const auto& build) {
    QuantizedSketch s;
    build(s, s.input("x", {6, 8}));
    s.fuse();
    return s.count("elementwise");
  };
  // Its own value is needed, too.
  EXPECT_EQ(left([](QuantizedSketch& s, Tensor x) {
              const Tensor y = s.nf4(x, "w");
              s.builder.output(kernels::add(x, y));
              s.builder.output(kernels::reduce_sum(y, 1));
            }),
            1);
  // A second residual, and an epilogue that matmul only has.
  EXPECT_EQ(left([](QuantizedSketch& s, Tensor x) {
              s.builder.output(kernels::add(kernels::add(x, s.nf4(x, "w")), s.input("other", {6, 8})));
            }),
            1);
  EXPECT_EQ(left([](QuantizedSketch& s, Tensor x) { s.builder.output(kernels::gelu(s.nf4(x, "w"))); }), 1);
  EXPECT_EQ(left([](QuantizedSketch& s, Tensor x) {
              s.builder.output(kernels::add(s.nf4(x, "w"), s.input("bias", {8})));
            }),
            1);
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

}  // namespace
}  // namespace meshloom::tests
