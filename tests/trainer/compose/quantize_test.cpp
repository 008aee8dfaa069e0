// Models with quantized weights: what is trained, that devices agree, and what merging adapters gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>

#include "hal/error.h"
#include "kernels/core/rng.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantize_dequantize/quantize_dequantize.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/adapters/merge.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "layers/quantized/quantized_linear.h"
#include "tests/trainer/compose/gradient_check.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/passes/differentiate.h"

namespace meshloom::tests {
namespace {

using kernels::Tensor;
using ::testing::HasSubstr;

layers::ClassTable classes() {
  layers::ClassTable table;
  layers::add_layer_classes(table);
  trainer::add_learner_classes(table);
  return table;
}

// Every Linear but the head by `form`, then in `adapter`.
layers::CausalLM::Config quantized(layers::CausalLM::Config model, const std::string& form = "Nf4Linear{}",
                                   const std::string& adapter = "Lora{rank=3}",
                                   const std::string& where = "**") {
  layers::replace(model, layers::Selection{.except = "**.head", .of_class = "Linear"}, form, classes());
  if (adapter.empty()) return model;
  layers::wrap(model, {.where = where, .of_class = "Linear"}, *layers::parse(adapter, classes(), "adapter"),
               "base", classes());
  return model;
}

trainer::AdamW::Config adapters_only() {
  trainer::AdamW::Config learner = adamw();
  learner.train = "adapters";
  return learner;
}

std::vector<std::byte> bytes_of(Bench& bench, const std::string& name) {
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(bench.session->plan().persistent_types.at(name).bytes()));
  bench.session->read(name, bytes);
  return bytes;
}

class FourBits : public testing::TestWithParam<std::tuple<std::string, std::string>> {};  // device, adapter

TEST_P(FourBits, AdaptersLearnAndPackedWeightsStay) {
  std::vector<std::vector<float>> losses;
  const auto& [device, adapter] = GetParam();
  const layers::CausalLM::Config model =
      quantized(of_experts(tiny_llama()), "Nf4Linear{}", adapter + "{rank=3}");
  for (const std::string& id : {std::string("cpu"), device}) {
    Bench bench(id);
    bench.start(
        trainer::compose_training(model, adapters_only(), small_options(), catalog(), bench.device->info()));
    const trainer::Plan& plan = bench.session->plan();
    std::map<std::string, std::vector<std::byte>> before;
    int packed = 0;
    for (const layers::ParameterInfo& info : plan.parameters) {
      before[info.path] = bytes_of(bench, info.path);
      packed += info.storage != nullptr;
      EXPECT_EQ(info.frozen, !info.adapter) << info.path;
    }
    EXPECT_GT(packed, 0);
    bench.set_rate(1e-2f);
    std::vector<float>& loss = losses.emplace_back();
    for (int step = 0; step < 10; ++step) {
      bench.feed(random_batch(4, 6, 19, 3));
      bench.session->run(trainer::Step::train);
      loss.push_back(bench.read("metrics")[0]);
    }
    EXPECT_LT(loss.back(), loss.front());
    for (const layers::ParameterInfo& info : plan.parameters)
      EXPECT_EQ(bytes_of(bench, info.path) == before.at(info.path), !info.adapter) << info.path;
  }
  for (std::size_t i = 0; i < losses[0].size(); ++i)
    EXPECT_NEAR(losses[0][i], losses[1][i], 1e-3 * losses[0][i]) << "step " << i;
}

INSTANTIATE_TEST_SUITE_P(Devices, FourBits,
                         testing::Combine(testing::ValuesIn(computing_devices()),
                                          testing::Values("Lora", "Dora")),
                         [](const auto& info) {
                           return plain_name(std::get<0>(info.param)) + std::get<1>(info.param);
                         });

class FourBitExperts : public testing::TestWithParam<kernels::DType> {};

// From the layer's input to its output, forward and backward, nothing of the size of activations or weights is f32.
TEST_P(FourBitExperts, AreMultipliedAndMovedInTheDtypeOfTheStep) {
  Bench bench("cpu");
  trainer::ComposeOptions options = small_options();
  options.dtype = GetParam();
  const trainer::Plan plan = trainer::compose_training(
      quantized(of_experts(tiny_llama()), "Nf4Linear{}", "Lora{rank=3}", "**.q_proj"), adapters_only(),
      options, catalog(), bench.device->info());
  std::map<std::string, int> seen;
  for (const auto& [name, planned] : plan.steps.programs)
    for (const kernels::Call& call : planned.program.calls) {
      const auto dtype = [&](kernels::ValueId id) { return planned.program.value(id).type.dtype; };
      ++seen[call.op];
      if (call.op == "nf4_unpack" || call.op == "grouped_matmul" || call.op.starts_with("moe_")) {
        EXPECT_EQ(dtype(call.outputs[0]), GetParam()) << call.path << " " << call.op;
      }
      if (call.op == "grouped_matmul" || call.op == "row_dot")
        for (int input : {0, 1}) {
          EXPECT_EQ(dtype(call.inputs[static_cast<std::size_t>(input)]), GetParam())
              << call.path << " " << call.op;
        }
      if (call.op == "cast") {
        EXPECT_FALSE(call.path.ends_with("feed_forward") || call.path.find("experts") != std::string::npos)
            << call.path;
      }
    }
  for (const char* op : {"nf4_unpack", "grouped_matmul", "moe_dispatch", "moe_combine", "row_dot"})
    EXPECT_GT(seen[op], 0) << op;
}

TEST_P(FourBitExperts, LearnAsInF32OnEveryDevice) {
  const layers::CausalLM::Config model = quantized(of_experts(tiny_llama()));
  const auto losses = [&](const std::string& device, kernels::DType dtype) {
    Bench bench(device);
    trainer::ComposeOptions options = small_options();
    options.dtype = dtype;
    bench.start(trainer::compose_training(model, adapters_only(), options, catalog(), bench.device->info()));
    std::vector<double> result;
    for (std::uint64_t step = 0; step < 5; ++step) {
      bench.set_rate(1e-2f);
      bench.feed(random_batch(4, 6, 19, 100 + step));
      bench.session->run(trainer::Step::train);
      result.push_back(bench.read("metrics")[0] / bench.read("metrics")[1]);
    }
    return result;
  };
  const std::vector<double> want = losses("cpu", kernels::DType::f32);
  for (const std::string& device : computing_devices()) {
    const std::vector<double> got = losses(device, GetParam());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 4 * hal::epsilon(GetParam()) * want[i]) << device << " step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, FourBitExperts, testing::Values(kernels::DType::bf16, kernels::DType::f16),
                         [](const auto& info) { return std::string(hal::to_string(info.param)); });

// |W| of a quantized weight is a parameter, and only when it is used.
TEST(FourBitGradients, AgainstDifferences) {
  const std::string dora = "Dora{rank=2 alpha=3}", where = "**.{q_proj,down_proj}";
  check_against_differences(quantized(tiny_llama(), "Nf4Linear{block=8}", dora, where));
  check_against_differences(quantized(tiny_gpt2(), "Nf4Linear{block=8 double_quantized=true}", dora, where));
  check_against_differences(
      quantized(of_experts(tiny_llama()), "Nf4Linear{block=8 double_quantized=true}", dora, where));
  const auto squares = [](const std::string& adapter) {
    int found = 0;
    for (const layers::ParameterInfo& info :
         layers::trace_logits(quantized(tiny_llama(), "Nf4Linear{}", adapter), catalog(), 1, 4).parameters)
      found += info.path.ends_with("weight_squares");
    return found;
  };
  EXPECT_EQ(squares("Lora{rank=2}"), 0);
  EXPECT_EQ(squares("Dora{rank=2}"), 21);  // every Linear of three layers
}

trainer::ComposeOptions logits_only() {
  trainer::ComposeOptions options = small_options();
  options.logits_batch = 2;
  options.logits_sequence = 5;
  return options;
}

// Logits of a session that holds a plan for them.
std::vector<float> logits(Bench& bench) {
  const Batch batch = random_batch(2, 5, 19, 1);
  bench.session->write("logits/tokens", std::as_bytes(std::span(batch.tokens)));
  bench.session->run(trainer::Step::logits);
  return bench.read("logits");
}

TEST(FourBitMerge, GivesTheSameModel) {
  const std::string forms[] = {"Nf4Linear{block=8}", "Nf4Linear{block=8 double_quantized=true}"};
  for (const std::string adapter : {"", "Lora{rank=3 alpha=30}", "Dora{rank=3 alpha=30}"})
    for (const layers::CausalLM::Config& model : {tiny_llama(), tiny_gpt2(), of_experts(tiny_llama())}) {
      const layers::CausalLM::Config packed =
          quantized(model, forms[adapter.empty() || adapter[0] == 'D'], adapter);
      Bench bench("cpu");
      bench.start(trainer::compose_inference(packed, logits_only(), catalog(), bench.device->info()));
      std::map<std::string, std::vector<float>> values;
      for (const layers::ParameterInfo& info : bench.session->plan().parameters) {
        if (info.path.ends_with("lora_b") || info.path.ends_with("magnitude")) {
          std::vector<float> b(static_cast<std::size_t>(info.type.elements()), 0.1f);
          if (info.path.ends_with("magnitude"))
            for (std::size_t i = 0; i < b.size(); ++i) b[i] = 0.8f + 0.05f * static_cast<float>(i % 7);
          bench.session->write(info.path, std::as_bytes(std::span(b)));
        }
        const std::vector<std::byte> bytes = bytes_of(bench, info.path);
        std::vector<float>& v = values[info.path];
        v.resize(static_cast<std::size_t>(info.type.elements()));
        if (info.type.dtype == kernels::DType::u8)
          for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(bytes[i]);
        else
          std::memcpy(v.data(), bytes.data(), bytes.size());
      }
      layers::MergedModel merged = layers::merge_adapters(packed);
      EXPECT_EQ(merged.adapters > 0, !adapter.empty());
      EXPECT_EQ(layers::diff(model, *merged.model), "");
      for (const layers::Merge& merge : merged.merges) {
        std::vector<std::vector<float>> sources;
        for (const std::string& source : merge.sources) sources.push_back(values.at(source));
        std::vector<float> target = merge.merge(sources);
        for (const std::string& source : merge.sources) values.erase(source);
        values[merge.target] = std::move(target);
      }
      Bench plain("cpu");
      plain.start(trainer::compose_inference(*merged.model, logits_only(), catalog(), plain.device->info()));
      const std::vector<float> other = logits(plain);
      EXPECT_EQ(values.size(), plain.session->plan().parameters.size());  // nothing is left over
      for (const layers::ParameterInfo& info : plain.session->plan().parameters)
        plain.session->write(info.path, std::as_bytes(std::span(values.at(info.path))));
      const std::vector<float> a = logits(bench), b = logits(plain);
      double off = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_NEAR(a[i], b[i], 1e-4);
        off = std::max(off, std::abs(static_cast<double>(a[i] - other[i])));
      }
      EXPECT_GT(off, 1e-3);  // of no use if quantising changed nothing
    }
}

TEST(FourBitPlan, HoldsAnEighthOfTheWeights) {
  const auto device = build().registry.open("null");
  const auto plan = [&](const layers::Config& model) {
    return trainer::compose_inference(model, logits_only(), catalog(), device->info());
  };
  layers::CausalLM::Config model = tiny_llama();
  const trainer::Plan full = plan(model), packed = plan(quantized(model, "Nf4Linear{}", ""));
  EXPECT_EQ(full.parameter_count(), packed.parameter_count());
  std::int64_t before = 0, after = 0, gaps = 0;  // tensors begin at multiples of 256 bytes at most
  for (const layers::ParameterInfo& info : full.parameters)
    if (info.path.find("_proj/weight") != std::string::npos) before += info.type.bytes();
  for (const layers::ParameterInfo& info : packed.parameters)
    if (info.storage) {
      after += info.type.bytes();
      gaps += 256;
    }
  EXPECT_LT(after, before / 5);
  EXPECT_LE(packed.memory.at("parameters"), full.memory.at("parameters") - before + after + gaps);
}

// --- products on fewer bits
// ------------------------------------------------------------------------------------

class FewerBits : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(FewerBits, EverythingLearns) {
  const auto& [id, product] = GetParam();
  std::vector<std::vector<float>> losses;
  for (const std::string& form : {std::string("Linear{}"), "QuantizedLinear{product=" + product + "}"}) {
    Bench bench(id);
    bench.start(trainer::compose_training(quantized(tiny_gpt2(), form, ""), adamw(), small_options(),
                                          catalog(), bench.device->info()));
    const trainer::Plan& plan = bench.session->plan();
    EXPECT_EQ(plan.trainable_parameter_count(), plan.parameter_count());
    bench.set_rate(3e-3f);
    std::vector<float>& loss = losses.emplace_back();
    for (int step = 0; step < 15; ++step) {
      bench.feed(random_batch(4, 6, 19, 3));
      bench.session->run(trainer::Step::train);
      loss.push_back(bench.read("metrics")[0]);
    }
    EXPECT_LT(loss.back(), 0.9f * loss.front());
  }
  EXPECT_NE(losses[0], losses[1]);
  for (std::size_t i = 0; i < losses[0].size(); ++i)
    EXPECT_NEAR(losses[0][i], losses[1][i], 0.05f * losses[0][i]) << "step " << i;
}

INSTANTIATE_TEST_SUITE_P(Devices, FewerBits,
                         testing::Combine(testing::ValuesIn(computing_devices()),
                                          testing::Values("Int8Product{}", "Fp8Product{}")),
                         [](const auto& info) {
                           return plain_name(std::get<0>(info.param) + std::get<1>(info.param));
                         });

// What `write` makes of numbers x (5, 12), w (7, 12) and c (5, 7).
std::vector<std::vector<float>> computed(
    const std::function<std::vector<Tensor>(Tensor x, Tensor w, Tensor c)>& write) {
  kernels::Program program;
  kernels::Builder builder(catalog(), program);
  Memory memory;
  const auto input = [&](const std::string& name, kernels::Shape shape, std::uint64_t seed) {
    kernels::HostTensor& value = memory[name] = kernels::HostTensor({kernels::DType::f32, std::move(shape)});
    kernels::fill_uniform({value.type, value.data.data()}, seed, -1, 1);
    return builder.input(name, value.type, kernels::Role::input);
  };
  const Tensor x = input("x", {5, 12}, 1), w = input("w", {7, 12}, 2), c = input("c", {5, 7}, 3);
  const std::vector<Tensor> wanted = write(x, w, c);
  const std::vector<kernels::HostTensor> values = interpret(program, catalog(), memory);
  std::vector<std::vector<float>> result;
  for (const Tensor& tensor : wanted) {
    const kernels::HostTensor& value = values[static_cast<std::size_t>(tensor.id)];
    result.emplace_back(value.as<float>(), value.as<float>() + value.type.elements());
  }
  return result;
}

TEST(StraightThrough, GradientsPassTheRounding) {
  // Of sum(c y), of which c is the cotangent of y.
  const auto of = [](const layers::Product& product) {
    return computed([&](Tensor x, Tensor w, Tensor c) {
      const Tensor y = product.multiply(x, w, {});
      const Tensor sum = kernels::reduce_sum(kernels::reshape(kernels::mul(y, c), {35, 1}), 1);
      return trainer::differentiate(*x.builder, sum, {x, w});
    });
  };
  const auto products = [](Tensor x, Tensor w, Tensor c) {
    return std::vector<Tensor>{kernels::matmul(c, w), kernels::matmul(c, x, {.trans_a = true})};
  };
  const auto plain = computed(products);
  EXPECT_EQ(of(layers::Int8Product{}), plain);
  layers::Fp8Product off;
  off.forward = off.backward = "";
  EXPECT_EQ(of(off), plain);
  const auto rounded = of(layers::Fp8Product{});
  EXPECT_EQ(rounded, computed([&](Tensor x, Tensor w, Tensor c) {
              const auto e4m3 = [](Tensor t) {
                return kernels::quantize_dequantize(t, kernels::EightBitFloat::e4m3);
              };
              return products(e4m3(x), e4m3(w),
                              kernels::quantize_dequantize(c, kernels::EightBitFloat::e5m2));
            }));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    double error = 0, size = 0;
    for (std::size_t k = 0; k < plain[i].size(); ++k) {
      error += std::pow(plain[i][k] - rounded[i][k], 2);
      size += std::pow(plain[i][k], 2);
    }
    EXPECT_GT(error, 0);
    EXPECT_LT(std::sqrt(error / size), 0.1);
  }
}

TEST(FourBitErrors, AreSaid) {
  const auto trace = [](const layers::Config& model) { layers::trace_logits(model, catalog(), 1, 4); };
  EXPECT_THAT(message_of([&] { trace(quantized(tiny_llama(), "Nf4Linear{block=12}")); }),
              HasSubstr("a multiple of 8"));
  layers::CausalLM::Config experts = tiny_llama();
  layers::replace(experts, "FeedForward", "MoE{num_experts=2}", classes());
  EXPECT_THAT(message_of([&] { trace(quantized(experts, "QuantizedLinear{product=Int8Product{}}", "")); }),
              HasSubstr("`except` leaves such layers out"));
}

}  // namespace
}  // namespace meshloom::tests
