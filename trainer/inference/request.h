// A text to be written: its prompt, how tokens are drawn, when it ends, and who is told.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "trainer/inference/sampler.h"
#include "trainer/inference/token_constraint.h"

namespace meshloom::trainer {

enum class FinishReason : std::uint8_t {
  stop,       // an end token, or RequestEvents::on_token() returned false
  length,     // max_tokens, or the longest sequence of the engine
  cancelled,  // EngineClient::cancel()
  deadline,
  error  // of the device or the sampler; the message says which
};
// "stop", "length", "cancelled", "deadline", "error".
std::string_view to_string(FinishReason reason);

// Which of a text's hidden states, behind the last norm, are its embedding.
enum class Pooling : std::uint8_t {
  none,  // there are no embeddings
  last,  // that of the last token
  mean   // the mean over all tokens, added in double in the order of the tokens
};

// A token and its log-probability by the model alone: the logarithm of the softmax of its logits, before temperature, penalties
// and biases.
struct TokenScore {
  std::int32_t id = 0;
  float logprob = 0;
  std::vector<std::pair<std::int32_t, float>>
      top;  // the Request::top most probable tokens, by falling probability
};

struct Usage {
  std::int64_t prompt_tokens = 0;  // of the source, where there is one
  std::int64_t cached_tokens = 0;  // of the prompt, whose keys and values were found in the prefix cache
  std::int64_t completion_tokens = 0;
};

// Called on the engine's thread, between two steps: what they do delays every request. They must not throw.
class RequestEvents {
 public:
  virtual ~RequestEvents() = default;
  // With Request::score_prompt, once before the first token: one score for each token of the prompt but the first.
  virtual void on_prompt(std::span<const TokenScore> scores);
  // With Request::embed, once: the embedding, not normalised, of EngineClient::embedding_size() numbers.
  virtual void on_embedding(std::span<const float> embedding);
  // With Request::pages_from, once for each page from there on, in order: what the caches keep of it. Returns whether to go on.
  virtual bool on_page(std::int64_t index, std::vector<std::byte> bytes);
  // An end token is reported too. Returns whether to go on.
  virtual bool on_token(const TokenScore& token) = 0;
  // The last call of a request.
  virtual void on_finish(FinishReason reason, const Usage& usage, const std::string& error) = 0;
};

struct Request {
  std::vector<std::int32_t> prompt;  // at least one token
  std::vector<std::int32_t>
      source;  // of a model with an encoder: what it reads, at least one token; else none
  SamplerOptions sampler;
  std::int64_t max_tokens = 16;  // 0 = only the prompt's scores, or its embedding
  std::vector<std::int32_t> end_tokens;
  std::shared_ptr<TokenConstraint>
      constraint;  // of this request alone; none = any token. Once it has ended, so has the text
  int top = 0;     // alternatives of each TokenScore
  // Whether the log-probabilities of generated tokens are wanted, which take about as long as drawing; without, TokenScore::logprob is 0.
  bool logprobs = true;
  bool score_prompt = false;
  bool embed = false;  // the embedding of the prompt is wanted, and nothing else: max_tokens must be 0
  // The prompt is whole pages, and those from this one on are wanted, and nothing else: max_tokens must be 0. It ends with `length`, or with
  // `stop` once on_page() says so.
  std::optional<std::int64_t> pages_from = {};
  int priority = 0;     // smaller = earlier; equal ones by arrival
  std::string adapter;  // that the engine has loaded; "" = the model alone
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::shared_ptr<RequestEvents> events;  // must be set
};

// Of pages that engines give one another (KVConnector).
struct KVTransferCounters {
  std::int64_t asked_tokens = 0, received_tokens = 0, pages_received = 0, bytes_received = 0;
  std::int64_t fallbacks =
      0;  // prompts of which pages were computed here although the other side might have given them
  std::int64_t refusals = 0;  // KVConnector::refusals()
  std::int64_t pages_sent = 0, bytes_sent = 0;
  bool connected = false;
};

struct EngineCounters {
  std::int64_t running = 0, waiting = 0;     // requests now
  std::int64_t pages = 0, pages_in_use = 0;  // of the pool
  std::int64_t prompt_tokens = 0, cached_tokens = 0, generation_tokens = 0, steps = 0,
               preemptions = 0,  // since the start
      weight_updates = 0, drafts = 0, draft_tokens = 0,
               accepted_tokens = 0;  // guesses that were computed, their tokens, those that were right
  std::int64_t adapters = 0;         // that requests can name
  std::int64_t checkpoint_step = 0;  // of the run whose parameters compute: how often they had been updated
  KVTransferCounters kv_transfer;
};

// The queue has no room; the caller may try again.
struct EngineBusy : Error {
  using Error::Error;
};

// There is no adapter of this name.
struct UnknownAdapter : Error {
  using Error::Error;
};

using RequestId = std::uint64_t;

// What a server needs of an engine. Safe from any thread.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  // Throws Error for a request that never fits or is invalid, UnknownAdapter, EngineBusy, and hal::DeviceLost once the device is gone. Events may
  // come before it returns.
  virtual RequestId submit(Request request) = 0;
  // Ends a request before the next step; one that has ended is ignored.
  virtual void cancel(RequestId id) = 0;
  virtual EngineCounters counters() const = 0;
  virtual std::int64_t max_length() const = 0;  // tokens of a prompt and what follows it, together
  // Tokens of a source, which each request must have; 0 = no request has one.
  virtual std::int64_t max_source() const { return 0; }
  virtual std::int64_t vocabulary() const = 0;
  // Of an embedding; 0 = there are none.
  virtual std::int64_t embedding_size() const { return 0; }
  // The names that Request::adapter can have besides "", in order.
  virtual std::vector<std::string> adapters() const { return {}; }
};

}  // namespace meshloom::trainer
