#include "tests/trainer/serve/scripted_engine.h"

#include <algorithm>

#include "hal/error.h"

namespace meshloom::tests {

using trainer::FinishReason;
using trainer::Request;
using trainer::RequestId;
using trainer::TokenScore;

ScriptedEngine::ScriptedEngine(std::int64_t max_length)
    : max_length_(max_length), thread_([this] { run(); }) {}

ScriptedEngine::~ScriptedEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

RequestId ScriptedEngine::submit(Request request) {
  const std::lock_guard lock(mutex_);
  if (lost_) throw hal::DeviceLost("engine", "must have its device");
  if (!refusal_.empty()) throw Error("engine", refusal_);
  if (room_ == 0) throw trainer::EngineBusy("engine", "must have room", "none");
  if (room_ > 0) --room_;
  seen_.push_back(request);
  seen_.back().events = nullptr;
  counters_.prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
  submitted_.push_back({++last_, std::move(request), text_, {}});
  changed_.notify_all();
  return last_;
}

void ScriptedEngine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(id);
  ++cancels_;
  changed_.notify_all();
}

trainer::EngineCounters ScriptedEngine::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void ScriptedEngine::say(std::string text) {
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
}
void ScriptedEngine::fail_with(std::string error) {
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
}
void ScriptedEngine::refuse_with(std::string error) {
  const std::lock_guard lock(mutex_);
  refusal_ = std::move(error);
}
void ScriptedEngine::lose_device() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
}
void ScriptedEngine::busy_after(int requests) {
  const std::lock_guard lock(mutex_);
  room_ = requests;
}
void ScriptedEngine::hold(bool held) {
  const std::lock_guard lock(mutex_);
  held_ = held;
  changed_.notify_all();
}
std::vector<Request> ScriptedEngine::requests() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}
void ScriptedEngine::wait_for_requests(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return seen_.size() >= count; });
}
void ScriptedEngine::wait_for_cancelled(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return cancels_ >= count; });
}

void ScriptedEngine::run() {
  std::vector<Active> active;
  for (;;) {
    std::set<RequestId> cancelled;
    std::string error;
    bool held = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return stop_ || !submitted_.empty() || !cancelled_.empty() || (!active.empty() && !held_);
      });
      if (stop_) break;
      for (Active& each : submitted_) active.push_back(std::move(each));
      submitted_.clear();
      cancelled.swap(cancelled_);
      error = error_;
      held = held_;
      counters_.running = static_cast<std::int64_t>(active.size());
    }
    for (std::size_t i = 0; i < active.size();) {
      const bool gone = cancelled.count(active[i].id) > 0;
      if ((held && !gone) || step(active[i], gone, error))
        ++i;
      else
        active.erase(active.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (Active& each : active) each.request.events->on_finish(FinishReason::cancelled, each.usage, {});
}

bool ScriptedEngine::step(Active& active, bool cancelled, const std::string& error) {
  const Request& request = active.request;
  trainer::RequestEvents& events = *request.events;
  const auto score = [&](std::int32_t id, float logprob) {
    TokenScore token{id, logprob, {}};
    for (int i = 0; i < request.top; ++i)
      token.top.emplace_back((id + i) % 256, logprob - static_cast<float>(i));
    return token;
  };
  const auto finish = [&](FinishReason reason) {
    active.usage.cached_tokens = 1;
    events.on_finish(reason, active.usage, reason == FinishReason::error ? error : "");
    return false;
  };
  if (cancelled) return finish(FinishReason::cancelled);
  if (active.written < 0) {
    active.written = 0;
    active.usage.prompt_tokens =
        static_cast<std::int64_t>((request.source.empty() ? request.prompt : request.source).size());
    if (request.score_prompt) {
      std::vector<TokenScore> scores;
      for (std::size_t i = 1; i < request.prompt.size(); ++i) scores.push_back(score(request.prompt[i], -1));
      events.on_prompt(scores);
    }
  }
  if (request.embed) {
    if (!error.empty()) return finish(FinishReason::error);
    std::vector<float> embedding(static_cast<std::size_t>(embedding_size_));
    embedding.at(0) = static_cast<float>(request.prompt.front());
    if (embedding.size() > 1) embedding[1] = static_cast<float>(request.prompt.size());
    events.on_embedding(embedding);
    {
      const std::lock_guard lock(mutex_);
      if (room_ >= 0) ++room_;  // as in a queue
    }
    return finish(FinishReason::stop);
  }
  if (active.written >= request.max_tokens) return finish(FinishReason::length);
  if (!error.empty() && active.written > 0) return finish(FinishReason::error);
  const auto at = static_cast<std::size_t>(active.written++);
  const std::int32_t id = at < active.text.size() ? static_cast<unsigned char>(active.text[at]) : 0;
  ++active.usage.completion_tokens;
  if (!events.on_token(score(id, -0.5f))) return finish(FinishReason::stop);
  if (std::find(request.end_tokens.begin(), request.end_tokens.end(), id) != request.end_tokens.end())
    return finish(FinishReason::stop);
  return active.written < request.max_tokens || finish(FinishReason::length);
}

ScriptedServer::ScriptedServer(std::vector<std::string> keys, bool ready, trainer::HttpOptions http) {
  start(std::move(keys), http);
  if (ready) set_model();
}

ScriptedServer::ScriptedServer(const TemplateFile& chat_template) : engine(8000) {
  tokens_.chat_template = chat_template.path;
  start({}, {});
  set_model();
}

void ScriptedServer::start(std::vector<std::string> keys, trainer::HttpOptions http) {
  chat_ = trainer::chat_format("", tokens_, *tokenizer_);
  server_ = std::make_unique<trainer::ApiServer>(trainer::ApiServerOptions{
      http, std::move(keys), [this](const std::string& note) { notes.push_back(note); },
      [this](const std::string& what) { lost.push_back(what); }});
  thread_ = std::thread([this] { server_->run(); });
}

ScriptedServer::~ScriptedServer() { stop(); }

void ScriptedServer::set_model() {
  trainer::ServedModel model;
  model.name = "test";
  model.engine = &engine;
  model.tokenizer = tokenizer_.get();
  model.encode = [this](std::string_view text) { return tokenizer_->encode(text); };
  if (engine.max_source() > 0) {
    model.decoder_prompt = {0};
    model.no_chat = "this model cannot chat";
  } else {
    model.chat = chat_.get();
  }
  model.ends = trainer::ends_of(tokens_, *tokenizer_);
  server_->set_model(model);
}

void ScriptedServer::stop() {
  server_->shut_down();
  if (thread_.joinable()) thread_.join();
}

}  // namespace meshloom::tests
