// How requests of the engine are refused, scored, ended and counted, alone and from many threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "hal/wrappers/forwarding_device.h"
#include "layers/cache/kv_cache.h"
#include "layers/config/tree.h"
#include "layers/models/models.h"
#include "tests/message_of.h"
#include "tests/trainer/inference/support.h"
#include "trainer/io/safetensors.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using trainer::Engine;
using trainer::EngineBusy;
using trainer::EngineCounters;
using trainer::EngineOptions;
using trainer::FinishReason;
using trainer::Request;
using trainer::RequestId;
using Clock = std::chrono::steady_clock;

Request greedy(std::int64_t prompt, std::int64_t tokens, std::uint64_t seed = 1) {
  Request request;
  request.prompt = random_tokens(prompt, seed);
  request.sampler.temperature = 0;
  request.max_tokens = tokens;
  return request;
}

// What the model by itself says of each token of a text but the first: log-probabilities of all tokens, by one forward pass.
std::vector<std::vector<double>> log_probabilities(TinyModel& model, const std::vector<std::int32_t>& text) {
  trainer::ComposeOptions options = model.config.compose_options();
  options.logits_batch = 1;
  options.logits_sequence = static_cast<std::int64_t>(text.size());
  trainer::Session session(
      *model.device, inference_catalog(),
      trainer::compose_inference(*model.config.model, options, inference_catalog(), model.device->info()));
  for (const auto& info : session.plan().parameters) {
    const trainer::StoredTensor* stored = model.weights.find(info.path);
    std::vector<std::byte> bytes(static_cast<std::size_t>(stored->bytes()));
    model.weights.read(*stored, bytes);
    session.write(info.path, bytes);
  }
  session.write("logits/tokens", std::as_bytes(std::span(text)));
  session.run(trainer::Step::logits);
  std::vector<float> logits(text.size() * 256);
  session.read("logits", std::as_writable_bytes(std::span(logits)));
  std::vector<std::vector<double>> rows;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    std::vector<double> row(logits.begin() + static_cast<std::ptrdiff_t>(i * 256),
                            logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * 256));
    double sum = 0;
    for (const double logit : row) sum += std::exp(logit);
    for (double& logit : row) logit -= std::log(sum);
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST(EngineScores, AreTheLogProbabilitiesOfOneForwardPass) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 3, .step_tokens = 8, .page_size = 4});
  Request request = greedy(13, 9);
  request.top = 5;
  request.score_prompt = true;
  request.sampler = {
      .temperature = 0.7, .logit_bias = {{7, 20.0}}, .seed = 3};  // which scores do not know of
  const std::shared_ptr<RecordedEvents> other = send(engine, greedy(20, 9, 2)), heard = send(engine, request);
  finish_all(engine);
  EXPECT_EQ(heard->reason(), FinishReason::length);
  EXPECT_EQ(heard->prompts, 1);
  EXPECT_EQ(other->prompts, 0);
  ASSERT_EQ(heard->prompt.size(), 12u);
  ASSERT_EQ(heard->tokens.size(), 9u);
  std::vector<std::int32_t> text = request.prompt;
  for (const std::int32_t id : heard->ids()) text.push_back(id);
  EXPECT_GT(std::count(text.begin() + 13, text.end(), 7), 3);  // the bias was heard of
  const std::vector<std::vector<double>> expected = log_probabilities(model, text);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("token " + std::to_string(i + 1));
    const trainer::TokenScore& score = i < 12 ? heard->prompt[i] : heard->tokens[i - 12];
    EXPECT_EQ(score.id, text[i + 1]);
    EXPECT_NEAR(score.logprob, expected[i][static_cast<std::size_t>(score.id)], 1e-4);
    std::vector<double> order = expected[i];
    std::sort(order.rbegin(), order.rend());
    ASSERT_EQ(score.top.size(), 5u);
    for (std::size_t k = 0; k < 5; ++k) {
      EXPECT_NEAR(score.top[k].second, order[k], 1e-4);
      EXPECT_NEAR(score.top[k].second, expected[i][static_cast<std::size_t>(score.top[k].first)], 1e-4);
    }
  }
}

TEST(EngineScores, OfAPromptAlone) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 2, .page_size = 4});
  Request whole = greedy(64, 0), one = greedy(1, 0), none = greedy(5, 0);
  whole.score_prompt = one.score_prompt = true;
  const std::shared_ptr<RecordedEvents> longest = send(engine, whole), shortest = send(engine, one),
                                        nothing = send(engine, none);
  finish_all(engine);
  for (const auto& heard : {longest, shortest, nothing}) {
    EXPECT_EQ(heard->reason(), FinishReason::length);
    EXPECT_TRUE(heard->tokens.empty());
    EXPECT_EQ(heard->usage.completion_tokens, 0);
  }
  EXPECT_EQ(longest->prompt.size(), 63u);
  EXPECT_EQ(shortest->prompts, 1);
  EXPECT_TRUE(shortest->prompt.empty());
  EXPECT_EQ(nothing->prompts, 0);
}

TEST(EngineRequests, EndAtAnEndTokenAtTheirLengthAndWhenTold) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 4, .page_size = 4});
  const std::shared_ptr<RecordedEvents> plain = send(engine, greedy(6, 20));
  finish_all(engine);
  const std::vector<std::int32_t> ids = plain->ids();
  ASSERT_EQ(ids.size(), 20u);
  EXPECT_EQ(plain->reason(), FinishReason::length);
  EXPECT_EQ(plain->usage.prompt_tokens, 6);
  EXPECT_EQ(plain->usage.completion_tokens, 20);

  Request ends = greedy(6, 20);
  ends.end_tokens = {ids[4]};
  const auto first = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), ids[4]) - ids.begin());
  const std::shared_ptr<RecordedEvents> ended = send(engine, ends), told = send(engine, greedy(6, 20));
  told->each = [&](std::int32_t) { return told->tokens.size() < 3; };
  const std::shared_ptr<RecordedEvents> endless =
      send(engine, greedy(6, std::numeric_limits<std::int64_t>::max()));
  finish_all(engine);
  EXPECT_EQ(ended->reason(), FinishReason::stop);
  EXPECT_EQ(ended->ids(), std::vector(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first) + 1));
  EXPECT_EQ(told->reason(), FinishReason::stop);
  EXPECT_EQ(told->ids(), std::vector(ids.begin(), ids.begin() + 3));
  EXPECT_EQ(endless->reason(), FinishReason::length);
  EXPECT_EQ(endless->usage.completion_tokens, 64 - 6);
  EXPECT_EQ(engine.counters().pages_in_use, 0);
}

TEST(EngineRequests, AreRefusedWhereTheyNeverFit) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 2, .page_size = 5, .pages = 4});
  EXPECT_EQ(engine.max_length(), 20);  // of the pool
  EXPECT_EQ(engine.vocabulary(), 256);
  const auto message = [&](const std::function<void(Request&)>& change) {
    Request request = greedy(3, 3);
    change(request);
    return message_of([&] { send(engine, request); });
  };
  EXPECT_EQ(message([](auto&) {}), "no error");
  EXPECT_EQ(message([](auto& r) { r.prompt = random_tokens(19, 1); }), "no error");
  EXPECT_THAT(message([](auto& r) { r.prompt = random_tokens(20, 1); }),
              AllOf(HasSubstr("prompt"), HasSubstr("20")));
  EXPECT_EQ(message([](auto& r) { r.prompt = random_tokens(20, 1), r.max_tokens = 0; }), "no error");
  EXPECT_THAT(message([](auto& r) { r.prompt.clear(); }), HasSubstr("at least one token"));
  EXPECT_THAT(message([](auto& r) { r.prompt[1] = 256; }), HasSubstr("id 256"));
  EXPECT_THAT(message([](auto& r) { r.prompt[1] = -1; }), HasSubstr("id -1"));
  EXPECT_THAT(message([](auto& r) { r.max_tokens = -1; }), HasSubstr("max-tokens"));
  EXPECT_THAT(message([](auto& r) { r.top = -1; }), HasSubstr("top"));
  EXPECT_THAT(message([](auto& r) { r.top = 257; }), HasSubstr("top"));
  EXPECT_THAT(message([](auto& r) { r.sampler.top_p = 0; }), HasSubstr("top-p"));
  EXPECT_THAT(message([](auto& r) { r.sampler.logit_bias = {{256, 1.0}}; }), HasSubstr("logit-bias"));
  EXPECT_THAT(message_of([&] { engine.submit(greedy(3, 3)); }), HasSubstr("events"));
  finish_all(engine);
}

TEST(EngineRequests, AreRefusedWhenTooManyWait) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 2, .page_size = 8, .max_waiting = 1});
  std::vector<std::shared_ptr<RecordedEvents>> heard;
  for (int i = 0; i < 3; ++i) heard.push_back(send(engine, greedy(3, 4)));
  EXPECT_THROW(send(engine, greedy(3, 4)), EngineBusy);
  EXPECT_EQ(engine.counters().waiting, 3);
  engine.step();
  EXPECT_EQ(engine.counters().waiting, 1);
  EXPECT_EQ(engine.counters().running, 2);
  EXPECT_THROW(send(engine, greedy(3, 4)), EngineBusy);
  finish_all(engine);
  heard.push_back(send(engine, greedy(3, 4)));
  finish_all(engine);
  for (const auto& each : heard) EXPECT_EQ(each->reason(), FinishReason::length);
}

TEST(EngineRequests, AreCancelled) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 2, .page_size = 4});
  RequestId first = 0, waiting = 0;
  const std::shared_ptr<RecordedEvents> running = send(engine, greedy(9, 40), &first),
                                        stays = send(engine, greedy(3, 5)),
                                        third = send(engine, greedy(3, 5), &waiting);
  running->each = [&](std::int32_t) {
    if (running->tokens.size() == 2) engine.cancel(first);  // from within
    return true;
  };
  engine.step();
  EXPECT_EQ(engine.counters().running, 2);
  engine.cancel(waiting);
  engine.cancel(12345);
  finish_all(engine);
  EXPECT_EQ(running->reason(), FinishReason::cancelled);
  EXPECT_EQ(running->tokens.size(), 2u);
  EXPECT_EQ(running->usage.completion_tokens, 2);
  EXPECT_EQ(third->reason(), FinishReason::cancelled);
  EXPECT_TRUE(third->tokens.empty());
  EXPECT_EQ(stays->reason(), FinishReason::length);
  EXPECT_EQ(engine.counters().pages_in_use, 0);
  engine.cancel(first);  // it has ended
  finish_all(engine);
  EXPECT_EQ(running->ends, 1);
}

TEST(EngineRequests, AreCancelledWhenTheEngineEnds) {
  TinyModel model;
  std::vector<std::shared_ptr<RecordedEvents>> heard;
  {
    Engine engine = model.engine({.max_sequences = 2, .page_size = 4});
    for (int i = 0; i < 3; ++i) heard.push_back(send(engine, greedy(3, 5)));
    engine.step();
    heard.push_back(send(engine, greedy(3, 5)));
  }
  for (const auto& each : heard) EXPECT_EQ(each->reason(), FinishReason::cancelled);
}

TEST(EngineRequests, EndAtTheirDeadline) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 1, .page_size = 4});
  Request late = greedy(3, 5), runs = greedy(3, 40), early = greedy(3, 5);
  late.deadline = Clock::now();
  runs.deadline = Clock::now() + std::chrono::milliseconds(300);
  early.deadline = Clock::now() + std::chrono::hours(1);
  const std::shared_ptr<RecordedEvents> passed = send(engine, late), running = send(engine, runs),
                                        in_time = send(engine, early);
  running->each = [&](std::int32_t) {
    std::this_thread::sleep_until(*runs.deadline);
    return true;
  };
  finish_all(engine);
  EXPECT_EQ(passed->reason(), FinishReason::deadline);
  EXPECT_TRUE(passed->tokens.empty());
  EXPECT_EQ(running->reason(), FinishReason::deadline);
  EXPECT_LE(running->tokens.size(), 1u);
  EXPECT_EQ(in_time->reason(), FinishReason::length);
  EXPECT_EQ(engine.counters().pages_in_use, 0);
}

TEST(EngineRequests, AreCounted) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 2, .page_size = 4, .pages = 20});
  EXPECT_EQ(engine.counters().pages, 20);
  send(engine, greedy(10, 3));
  engine.step();
  EXPECT_EQ(engine.counters().pages_in_use, 3);
  finish_all(engine);
  const std::shared_ptr<RecordedEvents> again = send(engine, greedy(10, 3));
  finish_all(engine);
  EXPECT_EQ(again->usage.cached_tokens, 8);
  Request scored = greedy(10, 3);
  scored.score_prompt = true;
  const std::shared_ptr<RecordedEvents> third = send(engine, scored);
  finish_all(engine);
  EXPECT_EQ(third->usage.cached_tokens, 0);
  EXPECT_EQ(third->ids(), again->ids());
  const EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.prompt_tokens, 30);
  EXPECT_EQ(counters.cached_tokens, 8);
  EXPECT_EQ(counters.generation_tokens, 9);
  EXPECT_EQ(counters.steps, 3 + 3 + 7);  // 10 tokens are scored 2 at a time
  EXPECT_EQ(counters.preemptions, 0);
}

TEST(EngineRequests, OfLowerPriorityWait) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 1, .page_size = 4});
  std::vector<int> order;
  for (const int priority : {1, 0, 1, -1}) {
    Request request = greedy(3, 1);
    request.priority = priority;
    send(engine, request)->each = [&order, priority](std::int32_t) {
      return order.push_back(priority), true;
    };
  }
  finish_all(engine);
  EXPECT_EQ(order, (std::vector<int>{-1, 0, 1, 1}));
}

TEST(EngineRequests, ArePenalizedForTheirOwnText) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 3, .page_size = 4});
  Request once = greedy(10, 30), often = greedy(30, 30);
  once.sampler.repetition_penalty = 1e6;
  const std::set<std::int32_t> given(once.prompt.begin(), once.prompt.end());
  std::fill(often.prompt.begin(), often.prompt.end(), 5);
  often.sampler.logit_bias = {{5, 1000.0}, {6, 980.0}};
  often.sampler.frequency_penalty = 2;
  const std::shared_ptr<RecordedEvents> distinct = send(engine, once), repeats = send(engine, often);
  finish_all(engine);
  std::set<std::int32_t> all = given;
  for (const std::int32_t id : distinct->ids()) EXPECT_TRUE(all.insert(id).second) << id;
  // Ten times or so, whatever the prompt holds.
  const std::vector<std::int32_t> ids = repeats->ids();
  EXPECT_EQ(std::vector(ids.begin(), ids.begin() + 3), (std::vector<std::int32_t>{5, 5, 5}));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 5) + std::count(ids.begin(), ids.end(), 6), 30);
  EXPECT_GT(std::count(ids.begin(), ids.end(), 6), 3);
}

// Those that run end with the parameters that they began with, and no page of theirs is found any more.
TEST(EngineWeights, ChangeBetweenRequests) {
  TinyModel before, after;
  after.initialize(6);
  const Request request = greedy(20, 25), other = greedy(20, 25, 2);
  const auto alone = [&](TinyModel& model, const Request& request) {
    Engine engine = model.engine({.page_size = 4});
    const std::shared_ptr<RecordedEvents> heard = send(engine, request);
    finish_all(engine);
    return heard->ids();
  };
  const std::vector<std::int32_t> old_text = alone(before, request), new_text = alone(after, request);
  ASSERT_NE(old_text, new_text);
  for (const bool few_pages : {false, true}) {
    Engine engine =
        before.engine({.max_length = 48, .max_sequences = 3, .page_size = 4, .pages = few_pages ? 14 : 0});
    const std::shared_ptr<RecordedEvents> first = send(engine, request), second = send(engine, other);
    for (int step = 0; step < 6; ++step) ASSERT_TRUE(engine.step());
    engine.set_weights(std::make_shared<const trainer::StoredTensors>(random_weights(after.config, -1, 6)),
                       7);
    const std::shared_ptr<RecordedEvents> third = send(engine, request);
    finish_all(engine);
    EXPECT_EQ(first->ids(), old_text);
    EXPECT_EQ(second->ids(), alone(before, other));
    EXPECT_EQ(third->ids(), new_text);
    EXPECT_EQ(third->usage.cached_tokens, 0);
    EXPECT_EQ(engine.counters().preemptions > 0, few_pages);
    EXPECT_EQ(engine.counters().weight_updates, 1);
    EXPECT_EQ(engine.counters().checkpoint_step, 7);
    // Without requests too.
    engine.set_weights(std::make_shared<const trainer::StoredTensors>(random_weights(before.config)));
    finish_all(engine);
    EXPECT_EQ(engine.counters().weight_updates, 2);
    const std::shared_ptr<RecordedEvents> fourth = send(engine, request);
    finish_all(engine);
    EXPECT_EQ(fourth->ids(), old_text);
    EXPECT_EQ(fourth->usage.cached_tokens, 0);
  }
}

TEST(EngineWeights, OfAnotherModelAreRefused) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 1, .checkpoint_step = 3});
  const auto refused = [&](const trainer::TrainerConfig& other) {
    return message_of([&] {
      engine.set_weights(std::make_shared<const trainer::StoredTensors>(random_weights(other)), 4);
    });
  };
  EXPECT_THAT(refused(trainer::tiny_pairs()), HasSubstr("must hold the tensor"));
  trainer::TrainerConfig wider = model.config;
  wider.model =
      layers::llama_config({.vocab = 256, .dim = 128, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 192});
  EXPECT_THAT(refused(wider), HasSubstr("must be f32(256, 64); found F32(256, 128)"));
  const std::shared_ptr<RecordedEvents> heard = send(engine, greedy(5, 5));
  finish_all(engine);
  EXPECT_EQ(heard->reason(), FinishReason::length);
  EXPECT_EQ(engine.counters().weight_updates, 0);
  EXPECT_EQ(engine.counters().checkpoint_step, 3);
}

// One that ends in the middle of the file leaves some of the new ones behind, with which nothing may be computed.
TEST(EngineWeights, ThatCannotBeReadEndIt) {
  TinyModel model;
  Engine engine = model.engine({.max_sequences = 1});
  const trainer::StoredTensors whole = random_weights(model.config, -1, 6);
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("meshloom-torn-" + std::to_string(::getpid()) + ".safetensors");
  {
    std::ofstream file(path, std::ios::binary);
    std::vector<trainer::StoredTensor> tensors(whole.tensors().begin(), whole.tensors().end());
    file << trainer::safetensors_header(tensors, {});
    for (const trainer::StoredTensor& tensor : whole.tensors()) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
      whole.read(tensor, bytes);
      file.write(reinterpret_cast<const char*>(bytes.data()), tensor.bytes());
    }
  }
  engine.set_weights(std::make_shared<const trainer::StoredTensors>(trainer::SafetensorsFile(path.string())),
                     4);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  std::filesystem::remove(path);
  const std::shared_ptr<RecordedEvents> heard = send(engine, greedy(5, 5));
  finish_all(engine);
  EXPECT_EQ(heard->reason(), FinishReason::error);
  EXPECT_EQ(engine.counters().checkpoint_step, 0);
  EXPECT_THROW(send(engine, greedy(5, 5)), hal::DeviceLost);
}

TEST(EngineModel, WithoutCachesIsRefused) {
  for (const char* without :
       {"decoder.stack.layer.attention.cache", "decoder.stack.layer.cross_attention.cache"}) {
    TinyModel model;
    model.config = trainer::tiny_pairs();
    layers::set(*model.config.model, without, "none", trainer::recipe_classes());
    EXPECT_THROW(model.engine({}), layers::NoCache);
    EXPECT_THAT(message_of([&] { model.engine({}); }), HasSubstr("no cache"));
  }
}

TEST(EngineModel, HasItsOptionsChecked) {
  TinyModel model;
  for (const EngineOptions& options :
       {EngineOptions{.max_length = -1}, EngineOptions{.max_sequences = 0}, EngineOptions{.step_tokens = 0},
        EngineOptions{.page_size = 0}, EngineOptions{.pages = -1}, EngineOptions{.max_waiting = -1},
        EngineOptions{.step_tokens = std::int64_t{1} << 31}})
    EXPECT_THAT(message_of([&] { model.engine(options); }), HasSubstr("must be from"));
  for (const EngineOptions& options :
       {EngineOptions{.max_sequences = 1 << 30}, EngineOptions{.page_size = 1 << 20, .pages = 1 << 11}})
    EXPECT_THAT(message_of([&] { model.engine(options); }), HasSubstr("2147483647 tokens together"));
}

// Throws in the submits that it is told to.
class FailingDevice : public hal::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  void submit(hal::CommandList& list) override {
    if (fails) {
      fails = false;
      if (lost) throw hal::DeviceLost("device", "was lost");
      throw Error("device", "must have room", "none");
    }
    ForwardingDevice::submit(list);
  }
  bool fails = false, lost = false;
};

TEST(EngineErrors, OfTheDeviceEndTheRequestsOfTheStep) {
  TinyModel model;
  FailingDevice device(inference_registry().open("cpu"));
  Engine engine(model.config, {.max_sequences = 2, .page_size = 4}, device, inference_catalog(),
                model.weights);
  const std::shared_ptr<RecordedEvents> alone = send(engine, greedy(3, 5, 9));
  finish_all(engine);
  std::vector<std::shared_ptr<RecordedEvents>> heard;
  for (int i = 0; i < 2; ++i) heard.push_back(send(engine, greedy(3, 5, 7)));
  heard.push_back(send(engine, greedy(3, 5, 9)));
  engine.step();
  device.fails = true;
  finish_all(engine);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(heard[static_cast<std::size_t>(i)]->reason(), FinishReason::error);
    EXPECT_THAT(heard[static_cast<std::size_t>(i)]->error, HasSubstr("must have room"));
  }
  EXPECT_EQ(heard[2]->reason(), FinishReason::length);
  EXPECT_EQ(heard[2]->ids(), alone->ids());
  EXPECT_EQ(engine.counters().pages_in_use, 0);

  device.fails = device.lost = true;
  for (int i = 0; i < 3; ++i) heard.push_back(send(engine, greedy(3, 5)));
  finish_all(engine);
  for (std::size_t i = 3; i < 6; ++i) {
    EXPECT_EQ(heard[i]->reason(), FinishReason::error);
    EXPECT_THAT(heard[i]->error, HasSubstr("was lost"));
  }
  EXPECT_THAT(message_of([&] { send(engine, greedy(3, 5)); }), HasSubstr("was lost"));
  EXPECT_FALSE(engine.step());
}

// One whose logits are not numbers ends, and neither those beside it nor those after it in the same pages are harmed.
TEST(EngineErrors, OfTheSamplerEndTheirRequest) {
  TinyModel model;
  const std::int32_t poison = 77;
  model.poison(poison);
  Engine engine = model.engine({.max_sequences = 3, .page_size = 4, .pages = 16});
  Request request = greedy(14, 5);
  for (std::int32_t& token : request.prompt)
    if (token == poison) token = 0;
  request.sampler.logit_bias = {{poison, -1e9}};
  const std::shared_ptr<RecordedEvents> alone = send(engine, request);
  finish_all(engine);
  Request poisoned = request;
  poisoned.prompt[3] = poison;
  poisoned.prompt.resize(13);
  for (int i = 0; i < 4; ++i) {
    const std::shared_ptr<RecordedEvents> bad = send(engine, poisoned), good = send(engine, request);
    finish_all(engine);
    EXPECT_EQ(bad->reason(), FinishReason::error);
    EXPECT_THAT(bad->error, HasSubstr("at least one logit must be finite"));
    EXPECT_EQ(good->reason(), FinishReason::length);
    EXPECT_EQ(good->ids(), alone->ids());
    request.prompt[0] += 1;  // pages that are not found
    const std::shared_ptr<RecordedEvents> other = send(engine, request);
    finish_all(engine);
    EXPECT_EQ(other->reason(), FinishReason::length);
    request.prompt[0] -= 1;
  }
}

TEST(EngineThreads, ManySubmitAndCancelWhileOneRuns) {
  TinyModel model;
  constexpr int kThreads = 8, kRequests = 25;
  Engine engine =
      model.engine({.max_sequences = 6, .step_tokens = 32, .page_size = 4, .pages = 40, .max_waiting = 0});
  std::vector<std::vector<std::int32_t>> expected;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const std::shared_ptr<RecordedEvents> heard = send(engine, greedy(10, 12, seed));
    finish_all(engine);
    expected.push_back(heard->ids());
  }
  std::jthread runs([&](const std::stop_token& stop) { engine.run(stop); });
  std::atomic<int> busy = 0, cancelled = 0, whole = 0;
  {
    std::vector<std::jthread> clients;
    for (int t = 0; t < kThreads; ++t)
      clients.emplace_back([&, t] {
        for (int i = 0; i < kRequests; ++i) {
          const auto seed = static_cast<std::uint64_t>((t + i) % 5);
          RequestId id = 0;
          std::shared_ptr<RecordedEvents> heard;
          while (!heard) {
            try {
              heard = send(engine, greedy(10, 12, seed), &id);
            } catch (const EngineBusy&) {
              ++busy;
              std::this_thread::yield();
            }
          }
          if (i % 3 == 0) engine.cancel(id);
          EXPECT_GE(engine.counters().pages, 40);
          const std::vector<std::int32_t> ids = heard->ids();
          if (heard->reason() == FinishReason::cancelled) {
            ++cancelled;
            EXPECT_EQ(i % 3, 0);
            EXPECT_TRUE(std::equal(ids.begin(), ids.end(), expected[seed].begin()));
          } else {
            ++whole;
            EXPECT_EQ(ids, expected[seed]);
          }
          EXPECT_EQ(heard->ends, 1);
        }
      });
  }
  EXPECT_GT(cancelled.load(), 0);
  EXPECT_EQ(cancelled + whole, kThreads * kRequests);
  runs.request_stop();
  runs.join();
  const EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.running + counters.waiting + counters.pages_in_use, 0);
  std::printf("%d were busy, %d cancelled, %d whole\n", busy.load(), cancelled.load(), whole.load());
}

}  // namespace
}  // namespace meshloom::tests
