#include "trainer/compose/passes/differentiate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/iota/iota.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/verify.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "tests/trainer/compose/gradient_check.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/fuse.h"

namespace meshloom::tests {
namespace {

using kernels::Builder;
using kernels::HostTensor;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;

TEST(Differentiate, LlamaAgainstDifferences) { check_against_differences(tiny_llama()); }
TEST(Differentiate, Gpt2AgainstDifferences) { check_against_differences(tiny_gpt2()); }

TEST(Differentiate, FusionKeepsGradients) {
  for (const layers::CausalLM::Config& model : {tiny_llama(), tiny_gpt2()}) {
    const Differentiated d(model);
    const Program fused = trainer::fuse(d.traced.program, catalog());
    kernels::verify(fused, catalog(), "fuse");
    EXPECT_LT(fused.calls.size(), d.traced.program.calls.size());
    const std::vector<HostTensor> before = interpret(d.traced.program, catalog(), d.inputs),
                                  after = interpret(fused, catalog(), d.inputs);
    for (std::size_t i = 0; i < d.traced.program.outputs.size(); ++i) {
      const HostTensor& a = before[static_cast<std::size_t>(d.traced.program.outputs[i])];
      const HostTensor& b = after[static_cast<std::size_t>(fused.outputs[i])];
      double highest = 0;
      for (std::int64_t k = 0; k < a.type.elements(); ++k)
        highest = std::max(highest, std::abs(static_cast<double>(a.as<float>()[k])));
      for (std::int64_t k = 0; k < a.type.elements(); ++k)
        ASSERT_NEAR(a.as<float>()[k], b.as<float>()[k], 2e-6 * highest + 1e-7)
            << fused.value(fused.outputs[i]).name;
    }
  }
}

TEST(Differentiate, SumsCotangentsOfSeveralReaders) {
  Program program;
  Builder builder(catalog(), program);
  const Tensor x = builder.input("x", {kernels::DType::f32, {3}}, Role::parameter);
  const Tensor y = kernels::mul(x, x);
  const Tensor z = kernels::reduce_sum(kernels::add(kernels::mul(y, x), y), 0);  // x^3 + x^2
  const Tensor g = trainer::differentiate(builder, z, {x})[0];
  EXPECT_EQ(program.value(g.id).name, "grad/x");
  EXPECT_EQ(program.value(g.id).role, Role::gradient);
  HostTensor in(x.type());
  for (int i = 0; i < 3; ++i) in.as<float>()[i] = 0.5f + static_cast<float>(i);
  const std::vector<HostTensor> values = interpret(program, catalog(), {{"x", in}});
  for (int i = 0; i < 3; ++i) {
    const float v = in.as<float>()[i];
    EXPECT_NEAR(values[static_cast<std::size_t>(g.id)].as<float>()[i], 3 * v * v + 2 * v, 1e-4);
  }
}

TEST(Differentiate, RefusesWhatDoesNotInfluenceTheLoss) {
  Program program;
  Builder builder(catalog(), program);
  const Tensor x = builder.input("x", {kernels::DType::f32, {3}}, Role::parameter);
  const Tensor y = builder.input("unused/weight", {kernels::DType::f32, {3}}, Role::parameter);
  const Tensor loss = kernels::reduce_sum(x, 0);
  try {
    trainer::differentiate(builder, loss, {x, y});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("unused/weight"), std::string::npos) << error.what();
  }
}

TEST(Differentiate, RefusesOpsWithoutGradient) {
  Program program;
  Builder builder(catalog(), program);
  const Tensor x = builder.input("x", {kernels::DType::f32, {3}}, Role::parameter);
  const Tensor loss = kernels::square_sum(x);
  EXPECT_THROW(trainer::differentiate(builder, loss, {x}), Error);
  EXPECT_THROW(trainer::differentiate(builder, x, {x}), Error);  // not a single number
}

}  // namespace
}  // namespace meshloom::tests
