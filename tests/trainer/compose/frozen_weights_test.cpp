// Frozen weights in the 16 bits that they are multiplied in: the same numbers in less memory.
#include "trainer/compose/passes/frozen_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hal/error.h"
#include "hal/low_precision.h"
#include "kernels/cast/cast.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/verify.h"
#include "layers/config/tree.h"
#include "tests/trainer/compose/fit_support.h"
#include "trainer/compose/passes/precision.h"
#include "trainer/config/modifier.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/apply.h"

namespace meshloom::trainer {
namespace {

using kernels::DType;
using kernels::HostTensor;
using testing::HasSubstr;

HostTensor numbers(const kernels::TensorType& type, float start) {
  HostTensor tensor(type);
  for (std::int64_t i = 0; i < type.elements(); ++i)
    tensor.as<float>()[i] = std::sin(start + 0.37f * static_cast<float>(i));
  return tensor;
}

HostTensor rounded(const HostTensor& values) {
  HostTensor tensor({DType::bf16, values.type.shape});
  for (std::int64_t i = 0; i < values.type.elements(); ++i)
    tensor.as<std::uint16_t>()[i] = hal::to_bf16(values.as<float>()[i]);
  return tensor;
}

// y = x W^T in bf16, and, where it is asked for, the sum of W in f32.
struct Product {
  kernels::Program program;
  kernels::Tensor y, sum;

  explicit Product(bool read_in_f32) {
    kernels::Builder builder(tests::catalog(), program);
    const kernels::Tensor x = builder.input("x", {DType::bf16, {3, 8}}, kernels::Role::input);
    const kernels::Tensor w = builder.input("w", {DType::f32, {5, 8}}, kernels::Role::parameter);
    y = kernels::matmul(x, kernels::cast(w, DType::bf16), {.trans_b = true});
    builder.output(y);
    if (!read_in_f32) return;
    sum = kernels::matmul(w, w, {.trans_b = true});
    builder.output(sum);
  }
};

layers::ParameterInfo frozen_w() {
  layers::ParameterInfo info;
  info.path = "w";
  info.type = {DType::f32, {5, 8}};
  info.frozen = true;
  return info;
}

TEST(FrozenWeights, AreThoseThatAreReadThroughCastsAlone) {
  layers::ParameterInfo info = frozen_w();
  EXPECT_THAT(frozen_weights(Product(false).program, {info}, DType::bf16), testing::ElementsAre("w"));
  EXPECT_THAT(frozen_weights(Product(true).program, {info}, DType::bf16), testing::IsEmpty());
  EXPECT_THAT(frozen_weights(Product(false).program, {info}, DType::f16), testing::IsEmpty());
  info.frozen = false;
  EXPECT_THAT(frozen_weights(Product(false).program, {info}, DType::bf16), testing::IsEmpty());
}

TEST(FrozenWeights, GiveTheSameNumbers) {
  const HostTensor x = rounded(numbers({DType::f32, {3, 8}}, 1)), w = numbers({DType::f32, {5, 8}}, 2);
  Product before(false), after(false), other(true);
  for (Product* product : {&after, &other}) {
    store_in(DType::bf16, {"w"}, product->program);
    kernels::verify(product->program, tests::catalog(), "frozen weights");
  }
  EXPECT_EQ(after.program.calls.size() + 1, before.program.calls.size()) << "the cast is gone";
  const auto run = [&](const kernels::Program& program, const HostTensor& weight) {
    return tests::interpret(program, tests::catalog(),
                            {{"x", x}, {"w", weight}})[static_cast<std::size_t>(program.outputs[0])];
  };
  const HostTensor want = run(before.program, w);
  EXPECT_EQ(run(after.program, rounded(w)).data, want.data);
  // A reader of f32 reads the values as they are stored.
  EXPECT_EQ(run(other.program, rounded(w)).data, want.data);
  const auto values = tests::interpret(other.program, tests::catalog(), {{"x", x}, {"w", rounded(w)}});
  const HostTensor& sum = values[static_cast<std::size_t>(other.program.outputs[1])];
  double first = 0;
  for (int i = 0; i < 8; ++i) {
    const double value = hal::from_bf16(rounded(w).as<std::uint16_t>()[i]);
    first += value * value;
  }
  EXPECT_NEAR(sum.as<float>()[0], first, 1e-6 * first);
}

// A table that is looked up and multiplied, as the tied embedding of a language model.
TEST(FrozenWeights, AreTablesToo) {
  const auto program_of = [](const char* dtype) {
    kernels::Program program;
    kernels::Builder builder(tests::catalog(), program);
    const kernels::Tensor ids = builder.input("ids", {DType::i32, {3}}, kernels::Role::input);
    const kernels::Tensor w = builder.input("w", {DType::f32, {5, 8}}, kernels::Role::parameter);
    const kernels::Tensor rows = builder.call1("embedding", {w, ids}, {{"dtype", dtype}});
    const kernels::Tensor x = kernels::cast(rows, DType::bf16);
    builder.output(kernels::matmul(x, kernels::cast(w, DType::bf16), {.trans_b = true}));
    return program;
  };
  EXPECT_THAT(frozen_weights(program_of("f32"), {frozen_w()}, DType::bf16), testing::IsEmpty());
  const kernels::Program before = program_of("bf16");
  EXPECT_THAT(frozen_weights(before, {frozen_w()}, DType::bf16), testing::ElementsAre("w"));
  kernels::Program after = before;
  store_in(DType::bf16, {"w"}, after);
  kernels::verify(after, tests::catalog(), "frozen weights");
  EXPECT_LT(after.calls.size(), before.calls.size());
  HostTensor ids({DType::i32, {3}});
  for (int i = 0; i < 3; ++i) ids.as<std::int32_t>()[i] = 4 - 2 * i;
  const HostTensor w = numbers({DType::f32, {5, 8}}, 2);
  const auto run = [&](const kernels::Program& program, const HostTensor& weight) {
    return tests::interpret(program, tests::catalog(),
                            {{"ids", ids}, {"w", weight}})[static_cast<std::size_t>(program.outputs[0])];
  };
  EXPECT_EQ(run(after, rounded(w)).data, run(before, w).data);
}

// The recipe `tiny` with adapters.
TrainerConfig adapted(const std::string& dtype) {
  const layers::ClassTable classes = recipe_classes();
  TrainerConfig config = tiny();
  Chain chain;
  layers::set(chain, "modifiers", "[Adapt{with=Lora{rank=4}}]", classes);
  apply_modifiers(config, chain.modifiers, "--modify", classes);
  config.dtype = dtype;
  config.batch = 4;
  config.sequence = 32;
  return config;
}

TEST(FrozenWeights, TakeHalfTheMemory) {
  const auto device = tests::build().registry.open("null");
  const Plan wide = tests::training_plan(adapted("f32"), device->info()),
             narrow = tests::training_plan(adapted("bf16"), device->info());
  std::int64_t frozen = 0, stored = 0;
  for (const layers::ParameterInfo& info : narrow.parameters) {
    EXPECT_EQ(info.type.dtype, DType::f32) << "what checkpoints hold";
    const kernels::TensorType& type = narrow.persistent_types.at(info.path);
    EXPECT_TRUE(info.frozen || type.dtype == DType::f32) << info.path;
    if (type.dtype != DType::bf16) continue;
    frozen += info.type.bytes();
    stored += type.bytes();
  }
  EXPECT_GT(frozen, 0);
  EXPECT_EQ(2 * stored, frozen);
  EXPECT_EQ(wide.memory.at("parameters") - narrow.memory.at("parameters"), frozen - stored);
  EXPECT_THAT(narrow.notes, testing::Contains(HasSubstr("frozen weights are stored in bf16")));
}

// On every device: what is planned is allocated, the run learns, and values are read back in f32.
TEST(FrozenWeights, AreTrainedOver) {
  for (const std::string& id : tests::computing_devices()) {
    const TrainerConfig config = adapted("bf16");
    const auto device = tests::build().registry.open(id);
    const tests::Batch batch = tests::random_batch(4, 32, 256, 3);
    const std::vector<double> losses = tests::losses_of(config, *device, batch, 4);
    EXPECT_LT(losses.back(), losses.front()) << id;
    EXPECT_EQ(tests::losses_of(config, *device, batch, 4), losses) << id << ", the same bits each time";

    Session session(*device, tests::catalog(), tests::training_plan(config, device->info()));
    for (const layers::ParameterInfo& info : session.plan().parameters) {
      if (session.plan().persistent_types.at(info.path).dtype != DType::bf16) continue;
      HostTensor given = numbers(info.type, 3), back(info.type);
      session.write(info.path, given.data);
      session.read(info.path, back.data);
      for (std::int64_t i = 0; i < info.type.elements(); ++i)
        ASSERT_EQ(back.as<float>()[i], hal::from_bf16(hal::to_bf16(given.as<float>()[i]))) << id;
      EXPECT_THROW(session.read(info.path, std::span(back.data).first(4)), hal::Error);
      break;
    }
  }
}

}  // namespace
}  // namespace meshloom::trainer
