#include "trainer/serve/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>

#include "trainer/inference/grammar/token_matcher.h"
#include "trainer/serve/engine_error.h"

namespace meshloom::trainer {
namespace {

std::string random_id(const char* prefix) {
  static std::mt19937_64 generator{std::random_device{}()};  // of the server's thread
  return fmt::format("{}-{:016x}{:016x}", prefix, generator(), generator());
}

// Which templates of Mistral's demand to be nine letters and digits.
std::string id_of_call(const ToolSyntax& syntax) {
  const std::string id = random_id("call");
  return syntax.short_ids ? id.substr(id.size() - 9) : "call_" + id.substr(id.size() - 24);
}

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

// Posts what the engine says to the server's thread. It keeps the request alive until the engine drops it.
class Generation::Events : public RequestEvents {
 public:
  Events(std::shared_ptr<Generation> generation, std::size_t choice,
         std::shared_ptr<std::atomic<bool>> enough)
      : generation_(std::move(generation)), choice_(choice), enough_(std::move(enough)) {}

  void on_prompt(std::span<const TokenScore> scores) override {
    post([scores = std::vector<TokenScore>(scores.begin(), scores.end())](
             Generation& generation, Choice& choice) { generation.echo(choice, scores); });
  }
  bool on_token(const TokenScore& token) override {
    post([token, time = std::chrono::steady_clock::now()](Generation& generation, Choice& choice) {
      generation.token(choice, token, time);
    });
    return !*enough_;
  }
  void on_finish(FinishReason reason, const Usage& usage, const std::string& error) override {
    post([=](Generation& generation, Choice& choice) { generation.finish(choice, reason, usage, error); });
  }

 private:
  template <typename Call>
  void post(Call call) {
    generation_->dependencies_.post([generation = generation_, choice = choice_, call = std::move(call)] {
      generation->guard([&] { call(*generation, generation->choices_[choice]); });
    });
  }

  std::shared_ptr<Generation> generation_;
  std::size_t choice_;
  std::shared_ptr<std::atomic<bool>> enough_;
};

Generation::Generation(ApiRequest request, Dependencies dependencies, std::shared_ptr<HttpReply> reply,
                       HttpResponse head)
    : request_(std::move(request)),
      dependencies_(std::move(dependencies)),
      reply_(std::move(reply)),
      head_response_(std::move(head)),
      head_{request_.chat, random_id(request_.chat ? "chatcmpl" : "cmpl"),
            request_.adapter.empty() ? dependencies_.model.name : request_.adapter, std::time(nullptr)},
      begun_(std::chrono::steady_clock::now()) {}

void Generation::begin() {
  choices_.reserve(request_.prompts.size() * static_cast<std::size_t>(request_.n));
  try {
    for (std::size_t prompt = 0; prompt < request_.prompts.size(); ++prompt)
      for (std::int64_t k = 0; k < request_.n; ++k) add_choice(prompt, k);
  } catch (const std::exception&) {
    abandon();
    throw_as_api_error(dependencies_.lost);
  }
  reply_->when_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock(); self && !self->over_) {
      for (Choice& choice : self->choices_)
        if (!choice.ended) self->dependencies_.metrics.finished("abort");
      self->abandon();
    }
  });
  if (request_.stream) {
    head_response_.type = "text/event-stream; charset=utf-8";
    head_response_.headers.emplace_back("Cache-Control", "no-cache");
    reply_->start(head_response_);
    dependencies_.metrics.responded(200);
  }
  for (Choice& choice : choices_) {
    if (request_.stream && request_.chat) send_event(role_chunk_json(head_, choice.part.index));
    if (request_.echo && !request_.logprobs) echo(choice, {});
  }
}

void Generation::add_choice(std::size_t prompt, std::int64_t k) {
  Choice choice;
  choice.prompt = prompt;
  choice.part.index = static_cast<std::int64_t>(choices_.size());
  if (request_.logprobs) choice.part.scores.emplace();
  const std::vector<std::int32_t>& tokens = request_.prompts[prompt];
  // An answer is a text of its own, as is what is written of a source; a completion continues the prompt's.
  const std::vector<std::int32_t>& begun = dependencies_.model.decoder_prompt;
  const bool answers = request_.chat || !begun.empty();
  choice.stream = std::make_unique<TextStream>(
      request_.tools.syntax ? dependencies_.model.tools->tokenizer() : *dependencies_.model.tokenizer,
      answers ? std::span<const std::int32_t>() : std::span(tokens), request_.stop);
  if (request_.tools.syntax)
    choice.reader = std::make_unique<ToolReader>(*request_.tools.syntax, request_.tools.functions,
                                                 request_.tools.several ? SIZE_MAX : 1);
  choice.usage.prompt_tokens = static_cast<std::int64_t>(tokens.size());
  Request request;
  (begun.empty() ? request.prompt : request.source) = tokens;
  if (!begun.empty()) request.prompt = begun;
  request.sampler = request_.sampler;
  // Choices differ by their seeds; prompts that are alike have the same choices where the client gave the seed.
  request.sampler.seed += static_cast<std::uint64_t>(request_.seeded ? k : choice.part.index);
  request.max_tokens = request_.tokens_after(prompt, dependencies_.model);
  request.end_tokens = request_.ends;
  if (request_.grammar)
    request.constraint = std::make_shared<TokenMatcher>(request_.grammar, request_.ends, answers);
  request.logprobs = request_.logprobs.has_value();
  request.top = request_.logprobs.value_or(0);
  request.score_prompt = request_.echo && request_.logprobs;
  request.adapter = request_.adapter;
  request.events = std::make_shared<Events>(shared_from_this(), choices_.size(), choice.enough);
  choice.id = dependencies_.model.engine->submit(std::move(request));
  choices_.push_back(std::move(choice));
}

void Generation::guard(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    fail(ApiError(500, error.what()));
  }
}

void Generation::echo(Choice& choice, std::span<const TokenScore> scores) {
  if (over_ || choice.echoed || !request_.echo) return;
  choice.echoed = true;
  choice.part.text += request_.echoes[choice.prompt];
  choice.characters = choice.echoed_characters = count_characters(request_.echoes[choice.prompt]);
  const std::vector<std::int32_t>& tokens = request_.prompts[choice.prompt];
  std::vector<std::int64_t> offsets;
  if (request_.logprobs)
    offsets = offsets_in(request_.echoes[choice.prompt], tokens, *dependencies_.model.tokenizer);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    ScoredToken scored{tokens[i], {}, {}, offsets[i]};
    if (i > 0 && i - 1 < scores.size()) {
      scored.logprob = scores[i - 1].logprob;
      scored.top = scores[i - 1].top;
    }
    choice.part.scores->push_back(std::move(scored));
  }
  if (request_.stream) send_part(choice);
}

void Generation::token(Choice& choice, const TokenScore& score, Time time) {
  if (over_ || choice.ended || choice.stream->stopped()) return;
  if (choice.last == Time())
    dependencies_.metrics.first_token.observe(seconds(time - begun_));
  else
    dependencies_.metrics.between_tokens.observe(seconds(time - choice.last));
  choice.last = time;
  ++choice.usage.completion_tokens;
  if (std::find(request_.ends.begin(), request_.ends.end(), score.id) != request_.ends.end()) return;
  if (request_.logprobs)
    choice.part.scores->push_back(
        {score.id, score.logprob, score.top, choice.echoed_characters + choice.stream->characters()});
  text(choice, choice.stream->add(score.id));
  if (choice.stream->stopped()) {
    *choice.enough = true;
    dependencies_.model.engine->cancel(choice.id);
  } else if (request_.stream && !(choice.part.text.empty() && choice.part.calls.empty())) {
    send_part(choice);
  }
}

void Generation::text(Choice& choice, std::string more) {
  choice.characters += count_characters(more);
  if (choice.reader)
    add_part(choice, choice.reader->add(more));
  else
    choice.part.text += more;
  if (!choice.stream->stopped() || !request_.logprobs) return;
  // The tokens of the stop string go with it.
  std::vector<ScoredToken>& scores = *choice.part.scores;
  while (!scores.empty() && scores.back().offset >= choice.characters) scores.pop_back();
}

void Generation::add_part(Choice& choice, ToolReader::Part part) {
  choice.part.text += part.text;
  for (ToolCall& call : part.calls)
    choice.part.calls.push_back({choice.calls++, id_of_call(*request_.tools.syntax), std::move(call)});
}

void Generation::finish(Choice& choice, FinishReason reason, const Usage& usage, const std::string& error) {
  if (over_ || choice.ended) return;
  choice.usage.cached_tokens = usage.cached_tokens;
  if (!choice.stream->stopped()) {
    if (reason != FinishReason::stop && reason != FinishReason::length) {
      dependencies_.metrics.finished(reason == FinishReason::error ? "error" : "abort");
      return fail(error_of_end(reason, error));
    }
    if (request_.echo && !choice.echoed) echo(choice, {});
    text(choice, choice.stream->finish());
  }
  if (choice.reader) add_part(choice, choice.reader->finish());
  choice.ended = true;
  choice.part.finish_reason = reason == FinishReason::length && !choice.stream->stopped() ? "length" : "stop";
  dependencies_.metrics.finished(choice.part.finish_reason);
  // A client must know that the last call may be missing where the text was cut off.
  if (choice.calls > 0 && choice.part.finish_reason == "stop") choice.part.finish_reason = "tool_calls";
  dependencies_.metrics.whole_request.observe(seconds(std::chrono::steady_clock::now() - begun_));
  if (request_.stream) send_part(choice);
  if (++ended_ == choices_.size()) complete();
}

Usage Generation::total() const {
  Usage sum;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Usage& usage = choices_[i].usage;
    sum.completion_tokens += usage.completion_tokens;
    if (i % static_cast<std::size_t>(request_.n) != 0) continue;  // a prompt counts once
    sum.prompt_tokens += usage.prompt_tokens;
    sum.cached_tokens += usage.cached_tokens;
  }
  return sum;
}

void Generation::complete() {
  over_ = true;
  if (request_.stream) {
    if (request_.usage_at_end) send_event(usage_chunk_json(head_, total()));
    reply_->write("data: [DONE]\n\n");
    reply_->end();
    return;
  }
  std::vector<ChoicePart> parts;
  for (Choice& choice : choices_) parts.push_back(std::move(choice.part));
  head_response_.body = dumped(response_json(head_, parts, total(), dependencies_.texts));
  dependencies_.metrics.responded(200);
  reply_->send(std::move(head_response_));
}

void Generation::abandon() {
  over_ = true;
  for (Choice& choice : choices_) {
    *choice.enough = true;
    if (!choice.ended) dependencies_.model.engine->cancel(choice.id);
  }
}

void Generation::fail(const ApiError& error) {
  if (over_) return;
  abandon();
  if (!request_.stream) {
    dependencies_.metrics.responded(error.status);
    return reply_->send(error_response(error));
  }
  reply_->write("data: " + error_json(error) + "\n\n");
  reply_->write("data: [DONE]\n\n");
  reply_->end();
}

// Each call is a chunk of its own, behind the text; the last one has the reason to finish.
void Generation::send_part(Choice& choice) {
  std::vector<CallPart> calls = std::exchange(choice.part.calls, {});
  std::string reason = std::exchange(choice.part.finish_reason, {});
  const auto send = [&](bool last) {
    if (last) choice.part.finish_reason = reason;
    send_chunk(choice);
    choice.part.text.clear();
    if (choice.part.scores) choice.part.scores->clear();
  };
  if (calls.empty() || !choice.part.text.empty()) send(calls.empty());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    choice.part.calls = {std::move(calls[i])};
    send(i + 1 == calls.size());
  }
  choice.part.calls.clear();
}

void Generation::send_chunk(const Choice& choice) {
  ResponseJson json = chunk_json(head_, choice.part, dependencies_.texts);
  if (request_.usage_in_chunks)
    json["usage"] = usage_json(choice.usage);
  else if (request_.usage_at_end)
    json["usage"] = nullptr;
  send_event(json);
}

void Generation::send_event(const ResponseJson& json) { reply_->write("data: " + dumped(json) + "\n\n"); }

}  // namespace meshloom::trainer
