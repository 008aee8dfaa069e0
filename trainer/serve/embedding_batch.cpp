#include "trainer/serve/embedding_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "trainer/serve/api_response.h"
#include "trainer/serve/engine_error.h"

namespace meshloom::trainer {
namespace {

// Inputs of one request that are with the engine at once: enough for its steps to be full, and others still get in.
constexpr std::size_t kRunning = 128;

std::string shown_embedding(std::span<const float> embedding, bool in_base64) {
  static_assert(std::endian::native == std::endian::little);
  if (in_base64) return "\"" + base64(std::as_bytes(embedding)) + "\"";
  std::string text = "[";  // numbers as short as they can be read back as f32
  for (const float value : embedding)
    fmt::format_to(std::back_inserter(text), "{}{}", text.size() > 1 ? "," : "", value);
  return text + "]";
}

}  // namespace

std::vector<float> normalized(std::span<const float> embedding, std::int64_t dimensions) {
  const std::span<const float> first = embedding.first(static_cast<std::size_t>(dimensions));
  double squares = 0;
  for (const float value : first) squares += static_cast<double>(value) * value;
  const double length = squares > 0 ? std::sqrt(squares) : 1;
  std::vector<float> unit;
  unit.reserve(first.size());
  for (const float value : first) unit.push_back(static_cast<float>(value / length));
  return unit;
}

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (; !bytes.empty(); bytes = bytes.subspan(std::min<std::size_t>(3, bytes.size()))) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i]) : 0);
    for (std::size_t i = 0; i < 4; ++i) text += i <= bytes.size() ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

// Posts what the engine says to the server's thread. It keeps the request alive until the engine drops it.
class EmbeddingBatch::Events : public RequestEvents {
 public:
  Events(std::shared_ptr<EmbeddingBatch> batch, std::size_t input)
      : batch_(std::move(batch)), input_(input) {}

  void on_embedding(std::span<const float> embedding) override {
    post([embedding = std::vector<float>(embedding.begin(), embedding.end())](
             EmbeddingBatch& batch, std::size_t input) { batch.take(input, embedding); });
  }
  bool on_token(const TokenScore&) override { return false; }
  void on_finish(FinishReason reason, const Usage& usage, const std::string& error) override {
    post([=](EmbeddingBatch& batch, std::size_t input) { batch.finish(input, reason, usage, error); });
  }

 private:
  template <typename Call>
  void post(Call call) {
    batch_->dependencies_.post([batch = batch_, input = input_, call = std::move(call)] {
      batch->guard([&] { call(*batch, input); });
    });
  }

  std::shared_ptr<EmbeddingBatch> batch_;
  std::size_t input_;
};

EmbeddingBatch::EmbeddingBatch(EmbeddingRequest request, Dependencies dependencies,
                               std::shared_ptr<HttpReply> reply, HttpResponse head)
    : request_(std::move(request)),
      dependencies_(std::move(dependencies)),
      reply_(std::move(reply)),
      response_(std::move(head)),
      begun_(std::chrono::steady_clock::now()),
      shown_(request_.inputs.size()) {}

void EmbeddingBatch::begin() {
  try {
    submit_more();
  } catch (const std::exception&) {
    abandon();
    throw;
  }
  reply_->when_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock(); self && !self->over_) {
      for (std::size_t i = 0; i < self->running_.size(); ++i) self->dependencies_.metrics.finished("abort");
      self->abandon();
    }
  });
}

void EmbeddingBatch::submit_more() {
  for (; next_ < request_.inputs.size() && running_.size() < kRunning; ++next_) {
    Request request;
    request.prompt = request_.inputs[next_];
    request.max_tokens = 0;
    request.embed = true;
    request.adapter = request_.adapter;
    request.events = std::make_shared<Events>(shared_from_this(), next_);
    try {
      running_[next_] = dependencies_.model.engine->submit(std::move(request));
    } catch (const std::exception& error) {
      running_.erase(next_);
      // Where those of this request that run are in its way, it comes again when one has ended.
      if (dynamic_cast<const EngineBusy*>(&error) && !running_.empty()) return;
      throw_as_api_error(dependencies_.lost);
    }
  }
}

void EmbeddingBatch::guard(const std::function<void()>& call) {
  try {
    call();
  } catch (const ApiError& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(ApiError(500, error.what()));
  }
}

void EmbeddingBatch::take(std::size_t input, std::span<const float> embedding) {
  if (over_) return;
  shown_[input] = shown_embedding(normalized(embedding, request_.dimensions), request_.base64);
}

void EmbeddingBatch::finish(std::size_t input, FinishReason reason, const Usage& usage,
                            const std::string& error) {
  running_.erase(input);
  if (over_) return;
  if (reason != FinishReason::stop) {
    dependencies_.metrics.finished(reason == FinishReason::error ? "error" : "abort");
    return fail(error_of_end(reason, error));
  }
  dependencies_.metrics.finished("stop");
  cached_tokens_ += usage.cached_tokens;
  submit_more();
  if (running_.empty() && next_ == request_.inputs.size()) complete();
}

void EmbeddingBatch::complete() {
  over_ = true;
  dependencies_.metrics.whole_request.observe(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count());
  std::string data;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < shown_.size(); ++i) {
    tokens += static_cast<std::int64_t>(request_.inputs[i].size());
    data += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":{}}})", i > 0 ? "," : "", i,
                        std::exchange(shown_[i], {}));
  }
  const std::string& model = request_.adapter.empty() ? dependencies_.model.name : request_.adapter;
  response_.body =
      fmt::format(R"({{"object":"list","data":[{}],"model":{},"usage":{}}})", data, dumped(model),
                  dumped({{"prompt_tokens", tokens},
                          {"total_tokens", tokens},
                          {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}}}));
  dependencies_.metrics.responded(200);
  reply_->send(std::move(response_));
}

void EmbeddingBatch::abandon() {
  over_ = true;
  for (const auto& [input, id] : running_) dependencies_.model.engine->cancel(id);
}

void EmbeddingBatch::fail(const ApiError& error) {
  if (over_) return;
  abandon();
  dependencies_.metrics.responded(error.status);
  reply_->send(error_response(error));
}

}  // namespace meshloom::trainer
