// Adapters of an engine: each request has its own, they share steps and never bits, and loading one disturbs no request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "layers/models/trace.h"
#include "tests/message_of.h"
#include "tests/trainer/inference/support.h"
#include "trainer/inference/lora_adapter.h"
#include "trainer/io/safetensors.h"

namespace meshloom::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using trainer::Engine;
using trainer::EngineOptions;
using trainer::FinishReason;
using trainer::LoraAdapter;
using trainer::LoraSlotsOfPlan;
using trainer::Request;
using trainer::TokenScore;

constexpr std::int64_t kLongestAdapted = 64;

// Of every `stride`th layer, so large that it changes what a text says.
LoraAdapter random_adapter(const LoraSlotsOfPlan& slots, std::int64_t rank, std::uint64_t seed,
                           int stride = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.15F);
  LoraAdapter adapter;
  int index = 0;
  for (const auto& [path, size] : slots.layers) {
    if (index++ % stride != 0) continue;
    LoraAdapter::Layer layer;
    layer.rank = rank;
    for (std::int64_t i = 0; i < rank * size.input; ++i) layer.a.push_back(normal(random));
    for (std::int64_t i = 0; i < rank * size.output; ++i) layer.b.push_back(normal(random));
    adapter.layers[path] = std::move(layer);
  }
  return adapter;
}

Engine engine_with_slots(TinyModel& model, EngineOptions options, std::int64_t slots, std::int64_t rank = 4) {
  trainer::TrainerConfig config = model.config;
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  trainer::add_lora_slots(config, slots, rank, classes);
  if (options.max_length == 0) options.max_length = kLongestAdapted;
  return {config, options, *model.device, inference_catalog(), model.weights};
}

void load(Engine& engine, const std::string& name, const LoraAdapter& adapter, bool replace = false) {
  engine.load_adapter(name, std::make_shared<const LoraAdapter>(adapter), replace);
}

Request adapted_request(std::uint64_t seed, const std::string& adapter, std::int64_t tokens = 8,
                        std::int64_t prompt = 12) {
  Request request;
  request.prompt = random_tokens(prompt, seed);
  request.max_tokens = tokens;
  request.sampler.temperature = 0;
  request.adapter = adapter;
  request.score_prompt = true;
  request.top = 3;
  return request;
}

bool equal_bits(const std::vector<TokenScore>& a, const std::vector<TokenScore>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TokenScore& x, const TokenScore& y) {
    return x.id == y.id && std::memcmp(&x.logprob, &y.logprob, sizeof(float)) == 0 && x.top == y.top;
  });
}
bool equal_bits(const RecordedEvents& a, const RecordedEvents& b) {
  return equal_bits(a.prompt, b.prompt) && equal_bits(a.tokens, b.tokens);
}

// The model's weights with an adapter added to them in double precision.
trainer::StoredTensors merged_weights(const trainer::StoredTensors& base, const LoraAdapter& adapter) {
  std::vector<trainer::StoredTensor> tensors;
  for (const trainer::StoredTensor& tensor : base.tensors())
    tensors.push_back({tensor.name, "F32", tensor.shape});
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("meshloom-merged-" + std::to_string(::getpid()) + ".safetensors");
  std::ofstream file(path, std::ios::binary);
  file << trainer::safetensors_header(tensors, {});
  for (const trainer::StoredTensor& tensor : base.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(tensor.bytes()) / sizeof(float));
    base.read(tensor, std::as_writable_bytes(std::span(values)));
    const std::string layer = tensor.name.substr(0, tensor.name.rfind('/'));
    if (const auto found = adapter.layers.find(layer);
        found != adapter.layers.end() && tensor.name.ends_with("/weight")) {
      const auto rank = static_cast<std::size_t>(found->second.rank), outputs = found->second.b.size() / rank,
                 inputs = found->second.a.size() / rank;
      for (std::size_t o = 0; o < outputs; ++o)
        for (std::size_t i = 0; i < inputs; ++i) {
          double sum = static_cast<double>(values[o * inputs + i]);
          for (std::size_t r = 0; r < rank; ++r)
            sum += static_cast<double>(found->second.b[o * rank + r]) *
                   static_cast<double>(found->second.a[r * inputs + i]);
          values[o * inputs + i] = static_cast<float>(sum);
        }
    }
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  file.close();
  trainer::StoredTensors stored{trainer::SafetensorsFile(path.string())};
  std::filesystem::remove(path);
  return stored;
}

TEST(Adapters, ComputeWhatTheMergedModelDoes) {
  for (const std::string device : {"cpu", "opencl", "vulkan"}) {
    SCOPED_TRACE(device);
    TinyModel model(device);
    Engine engine = engine_with_slots(model, {}, 3);
    EXPECT_EQ(engine.lora_slots().rank, 4);
    for (const int stride : {1, 3}) {
      const LoraAdapter adapter = random_adapter(engine.lora_slots(), 2 + stride / 2, 7, stride);
      load(engine, "a", adapter, true);
      const auto with = send(engine, adapted_request(1, "a"));
      finish_all(engine);
      TinyModel other(device);
      other.weights = merged_weights(model.weights, adapter);
      Engine plain = other.engine({.max_length = kLongestAdapted});
      const auto expected = send(plain, adapted_request(1, ""));
      finish_all(plain);
      const auto base = send(engine, adapted_request(1, ""));
      finish_all(engine);
      ASSERT_EQ(with->reason(), FinishReason::length) << with->error;
      ASSERT_EQ(with->ids(), expected->ids());
      ASSERT_EQ(with->prompt.size(), expected->prompt.size());
      bool differs = false;
      for (std::size_t i = 0; i < with->prompt.size(); ++i) {
        EXPECT_NEAR(with->prompt[i].logprob, expected->prompt[i].logprob, 1e-4);
        differs |= std::abs(with->prompt[i].logprob - base->prompt[i].logprob) > 0.01;
      }
      EXPECT_TRUE(differs);
    }
  }
}

// Eight adapters and the model alone in the same steps, against each alone in an engine of its own.
TEST(Adapters, KeepTheirBitsInAnyCompany) {
  TinyModel model;
  const EngineOptions options{.max_sequences = 18, .step_tokens = 64, .page_size = 8};
  Engine engine = engine_with_slots(model, options, 8);
  std::vector<LoraAdapter> adapters;
  for (int i = 0; i < 8; ++i) {
    adapters.push_back(
        random_adapter(engine.lora_slots(), 1 + i % 4, static_cast<std::uint64_t>(i) + 20, 1 + i % 2));
    load(engine, "adapter-" + std::to_string(i), adapters.back());
  }
  EXPECT_EQ(engine.counters().adapters, 8);
  std::vector<std::shared_ptr<RecordedEvents>> together;
  // All of one prompt, so that pages would be found if adapters shared them.
  for (int round = 0; round < 2; ++round)
    for (int i = -1; i < 8; ++i)
      together.push_back(
          send(engine, adapted_request(3, i < 0 ? "" : "adapter-" + std::to_string(i), 10, 20)));
  finish_all(engine);
  for (int i = -1; i < 8; ++i) {
    SCOPED_TRACE(i);
    TinyModel fresh;
    Engine alone = i < 0 ? fresh.engine({.max_length = kLongestAdapted, .page_size = 8})
                         : engine_with_slots(fresh, {.page_size = 8}, 1);
    if (i >= 0) load(alone, "it", adapters[static_cast<std::size_t>(i)]);
    const auto expected = send(alone, adapted_request(3, i < 0 ? "" : "it", 10, 20));
    finish_all(alone);
    ASSERT_EQ(expected->reason(), FinishReason::length) << expected->error;
    for (const int round : {0, 9}) {
      RecordedEvents& found = *together[static_cast<std::size_t>(round + i + 1)];
      ASSERT_EQ(found.reason(), FinishReason::length) << found.error;
      EXPECT_TRUE(equal_bits(found, *expected));
    }
  }
}

TEST(Adapters, ShareNoPagesButWithThemselves) {
  TinyModel model;
  Engine engine = engine_with_slots(model, {.page_size = 8}, 2);
  load(engine, "a", random_adapter(engine.lora_slots(), 2, 1));
  load(engine, "b", random_adapter(engine.lora_slots(), 2, 2));
  const auto cached = [&](const std::string& adapter) {
    Request request = adapted_request(5, adapter, 4, 30);
    request.score_prompt = false;
    const auto heard = send(engine, request);
    finish_all(engine);
    EXPECT_EQ(heard->reason(), FinishReason::length) << heard->error;
    return heard->usage.cached_tokens;
  };
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_EQ(cached("a"), 24);
  EXPECT_EQ(cached("b"), 24);
  EXPECT_EQ(cached(""), 24);
  load(engine, "a", random_adapter(engine.lora_slots(), 2, 3), true);  // another version
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("a"), 24);
  EXPECT_EQ(cached("b"), 24);
}

// A text of the adapter that is replaced or unloaded goes on with it, whatever comes after.
TEST(Adapters, OfRunningRequestsStay) {
  TinyModel model;
  for (const std::int64_t slots : {1, 2}) {
    SCOPED_TRACE(slots);
    Engine engine = engine_with_slots(model, {.page_size = 8}, slots);
    const LoraAdapter first = random_adapter(engine.lora_slots(), 4, 1),
                      second = random_adapter(engine.lora_slots(), 4, 2);
    const auto alone = [&](const LoraAdapter& adapter) {
      Engine other = engine_with_slots(model, {.page_size = 8}, 1);
      load(other, "a", adapter);
      const auto heard = send(other, adapted_request(1, "a", 20));
      finish_all(other);
      return heard;
    };
    load(engine, "a", first);
    const auto old = send(engine, adapted_request(1, "a", 20));
    for (int i = 0; i < 4; ++i) engine.step();
    bool loaded = false;
    engine.load_adapter("a", std::make_shared<const LoraAdapter>(second), true,
                        [&](const std::string& error) {
                          EXPECT_EQ(error, "");
                          loaded = true;
                        });
    const auto fresh = send(engine, adapted_request(1, "a", 20));
    engine.step();
    EXPECT_EQ(loaded, slots == 2);  // where there is another slot
    engine.unload_adapter("a");
    EXPECT_THROW(send(engine, adapted_request(1, "a")), trainer::UnknownAdapter);
    const auto base = send(engine, adapted_request(1, "", 20));
    finish_all(engine);
    EXPECT_TRUE(loaded);
    EXPECT_TRUE(equal_bits(*old, *alone(first)));
    EXPECT_TRUE(equal_bits(*fresh, *alone(second)));
    EXPECT_EQ(base->reason(), FinishReason::length) << base->error;
    load(engine, "b", first);  // its slot is free again
    const auto again = send(engine, adapted_request(1, "b", 20));
    finish_all(engine);
    EXPECT_TRUE(equal_bits(*again, *old));
  }
}

TEST(Adapters, AreRefusedWhereTheyDoNotFit) {
  TinyModel model;
  Engine plain = model.engine({.max_length = kLongestAdapted});
  Engine engine = engine_with_slots(model, {}, 1, 2);
  const LoraSlotsOfPlan& slots = engine.lora_slots();
  const auto refusal = [](Engine& of, const std::string& name, const LoraAdapter& adapter) {
    return message_of([&] { load(of, name, adapter); });
  };
  EXPECT_THAT(refusal(plain, "a", {}), HasSubstr("needs a model with slots for adapters"));
  EXPECT_THAT(refusal(engine, "a", random_adapter(slots, 3, 1)), HasSubstr("--max-lora-rank"));
  EXPECT_THAT(refusal(engine, "a b", random_adapter(slots, 1, 1)), HasSubstr("printable ASCII"));
  EXPECT_THAT(refusal(engine, "", random_adapter(slots, 1, 1)), HasSubstr("printable ASCII"));
  LoraAdapter other = random_adapter(slots, 1, 1);
  other.layers["decoder/nothing"] = other.layers.begin()->second;
  EXPECT_THAT(refusal(engine, "a", other), HasSubstr("layer 'decoder/nothing'"));
  other = random_adapter(slots, 1, 1);
  other.layers.begin()->second.a.pop_back();
  EXPECT_THAT(refusal(engine, "a", other), HasSubstr("inputs"));
  EXPECT_EQ(refusal(engine, "a", random_adapter(slots, 1, 1)), "no error");
  EXPECT_THAT(refusal(engine, "a", random_adapter(slots, 1, 1)), HasSubstr("name of no adapter"));
  EXPECT_THAT(refusal(engine, "b", random_adapter(slots, 1, 1)), HasSubstr("--max-loras"));
  EXPECT_THAT(engine.adapters(), ElementsAre("a"));
  EXPECT_THAT(message_of([&] { send(engine, adapted_request(1, "b")); }),
              HasSubstr("must be one that is loaded (a)"));
  EXPECT_THAT(message_of([&] { engine.unload_adapter("b"); }), HasSubstr("must be one that is loaded (a)"));
  finish_all(engine);
}

// Requests of all adapters come while adapters come and go; each one ends well.
TEST(Adapters, ComeAndGoWhileRequestsRun) {
  TinyModel model;
  Engine engine = engine_with_slots(
      model, {.max_sequences = 6, .step_tokens = 32, .page_size = 8, .max_waiting = 1000}, 3);
  load(engine, "a", random_adapter(engine.lora_slots(), 4, 1));
  load(engine, "b", random_adapter(engine.lora_slots(), 2, 2));
  std::jthread running([&](const std::stop_token& stop) { engine.run(stop); });
  std::atomic<int> loaded = 0;
  std::jthread loading([&] {
    for (std::uint64_t i = 0; i < 30; ++i) {
      const std::string name = i % 3 == 0 ? "c" : "b";
      try {
        engine.load_adapter(name,
                            std::make_shared<const LoraAdapter>(random_adapter(engine.lora_slots(), 3, i)),
                            true, [&](const std::string& error) {
                              EXPECT_EQ(error, "");
                              ++loaded;
                            });
        if (i % 3 == 0) engine.unload_adapter("c");
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::vector<std::shared_ptr<RecordedEvents>> of_a;
  for (std::uint64_t i = 0; i < 60; ++i) {
    for (const std::string adapter : {"a", "b", ""}) {
      const auto heard = send(engine, adapted_request(adapter == "a" ? 1 : i, adapter, 6));
      if (adapter == "a") of_a.push_back(heard);
      if (i % 10 == 0) {
        EXPECT_EQ(heard->reason(), FinishReason::length) << heard->error;
      }
    }
  }
  loading.join();
  for (const auto& heard : of_a) {
    EXPECT_EQ(heard->reason(), FinishReason::length) << heard->error;
    EXPECT_TRUE(equal_bits(*heard, *of_a.front()));
  }
  while (engine.counters().running + engine.counters().waiting > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto last = send(engine, adapted_request(1, "b"));
  EXPECT_EQ(last->reason(), FinishReason::length);
  running.request_stop();
  running.join();
  EXPECT_EQ(loaded, 30);
}

// A token without an adapter has the bits of an engine without slots.
TEST(Adapters, SlotsChangeNothingWithoutThem) {
  TinyModel model;
  Engine plain = model.engine({.max_length = kLongestAdapted, .page_size = 8});
  Engine engine = engine_with_slots(model, {.page_size = 8}, 4);
  load(engine, "a", random_adapter(engine.lora_slots(), 4, 1));
  for (std::uint64_t i = 0; i < 6; ++i) {
    const auto expected = send(plain, adapted_request(i, ""));
    const auto found = send(engine, adapted_request(i, ""));
    const auto beside = send(engine, adapted_request(i, "a"));
    finish_all(plain);
    finish_all(engine);
    EXPECT_TRUE(equal_bits(*expected, *found));
    EXPECT_FALSE(equal_bits(*expected, *beside));
  }
}

}  // namespace
}  // namespace meshloom::tests
