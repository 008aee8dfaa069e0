// Logits and loss of a tiny Llama and a tiny GPT-2 against Hugging Face transformers in double precision
// (goldens made by tests/golden/make_transformers_goldens.py).
#include <gtest/gtest.h>

#include "layers/models/models.h"
#include "tests/layers/interpreter.h"
#include "trainer/io/safetensors.h"

namespace meshloom::layers {
namespace {

constexpr std::int64_t kBatch = 2, kSequence = 11, kVocab = 61;

template <typename T>
std::vector<T> read(const trainer::SafetensorsFile& file, const std::string& name) {
  const trainer::StoredTensor* stored = file.find(name);
  if (!stored) throw Error("golden", "has no tensor", name);
  std::vector<T> values(static_cast<std::size_t>(stored->bytes()) / sizeof(T));
  file.read(*stored, std::as_writable_bytes(std::span<T>(values)));
  return values;
}

// Each f32 op rounds once; below 64 of them lie on the longest way through these models.
constexpr double kTolerance = 64 * hal::epsilon(hal::DType::f32);

void expect_golden(const std::string& name, const CausalLM::Config& model) {
  const trainer::SafetensorsFile file(std::string(MESHLOOM_SOURCE_DIR) + "/tests/golden/" + name);
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  const auto run = [&](const Traced& t) {
    tests::Values inputs;
    for (const kernels::ValueId id : t.program.inputs) {
      const kernels::Value& value = t.program.value(id);
      const std::string stored = (value.role == kernels::Role::parameter ? "parameter/" : "") + value.name;
      inputs[id] = value.type.dtype == hal::DType::i32
                       ? tests::host(value.type, read<std::int32_t>(file, stored).data())
                       : tests::host(value.type, read<float>(file, stored).data());
    }
    return tests::interpret(t.program, catalog, std::move(inputs));
  };
  const Traced loss = trace_loss(model, catalog, kBatch, kSequence);
  const Traced logits = trace_logits(model, catalog, kBatch, kSequence);
  // Every parameter of theirs is one of ours.
  std::size_t parameters = 0;
  for (const trainer::StoredTensor& stored : file.tensors())
    parameters += stored.name.rfind("parameter/", 0) == 0;
  EXPECT_EQ(parameters, loss.parameters.size());

  const double want_loss = read<float>(file, "loss_sum")[0];
  EXPECT_NEAR(run(loss).at(loss.loss_sum).as<float>()[0], want_loss, kTolerance * want_loss);
  const std::vector<float> want = read<float>(file, "logits");
  ASSERT_EQ(want.size(), static_cast<std::size_t>(kBatch * kSequence * kVocab));
  const tests::Values values = run(logits);
  const float* got = values.at(logits.logits).as<float>();
  double largest = 0;
  for (const float w : want) largest = std::max(largest, std::abs(static_cast<double>(w)));
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], kTolerance * largest) << i;
}

TEST(Transformers, Llama) {
  expect_golden(
      "llama.safetensors",
      llama_config({.vocab = kVocab, .dim = 32, .layers = 2, .heads = 2, .kv_heads = 1, .ffn = 40}));
}

TEST(Transformers, Gpt2) {
  expect_golden("gpt2.safetensors",
                gpt2_config({.vocab = kVocab, .dim = 32, .layers = 2, .heads = 2, .context = 16}));
}

}  // namespace
}  // namespace meshloom::layers
