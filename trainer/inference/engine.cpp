#include "trainer/inference/engine.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>
#include <utility>

#include "hal/math.h"
#include "hal/suggest.h"
#include "trainer/inference/prompt_lookup.h"
#include "trainer/inference/token_score.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kMaxName = 256;  // bytes of an adapter's name

template <typename Adapters>
UnknownAdapter unknown_adapter(const std::string& name, const Adapters& adapters) {
  std::vector<std::string> names;
  for (const auto& [known, unused] : adapters) names.push_back(known);
  return UnknownAdapter("adapter",
                        "must be one that is loaded (" + (names.empty() ? "none" : hal::join(names)) + ")",
                        "'" + name + "'");
}

// Pages that nothing is kept in never run out.
std::int64_t pages_of(const EngineOptions& options, const ModelRunner& runner) {
  const std::int64_t most = options.max_sequences * hal::ceil_div(options.max_length, options.page_size);
  return runner.uses_pages() ? options.pages : std::max(options.pages, most);
}

}  // namespace

Engine::Active::Active(RequestId id, Request taken, Pooling pooling) : request(std::move(taken)) {
  priority = request.priority;
  arrival = id;
  tokens = request.prompt;
  prompt = size();
  usage.prompt_tokens = request.source.empty() ? prompt : static_cast<std::int64_t>(request.source.size());
  // Where the logits or the hidden state of every token are wanted, every token is computed.
  prefix_cache = !request.score_prompt && !(request.embed && pooling == Pooling::mean);
  if (request.score_prompt) scored = 0;
  next_page = request.pages_from.value_or(0);
}

Engine::Engine(const TrainerConfig& config, const EngineOptions& options, hal::Device& device,
               const kernels::Catalog& catalog, const StoredTensors& weights,
               std::unique_ptr<Speculator> speculator)
    : Engine(config, options, ModelRunner(config, runner_options(options, config), device, catalog, weights),
             true, std::move(speculator)) {}

Engine::Engine(const TrainerConfig& config, const EngineOptions& options, hal::Device& device,
               const kernels::Catalog& catalog, const std::function<void(Session&)>& write_parameters,
               std::unique_ptr<Speculator> speculator)
    : Engine(config, options,
             ModelRunner(config, runner_options(options, config), device, catalog, write_parameters), true,
             std::move(speculator)) {}

Engine::Engine(const TrainerConfig& config, const EngineOptions& options, Session& session,
               std::unique_ptr<Speculator> speculator)
    : Engine(config, options, ModelRunner(config, runner_options(options, config), session), false,
             std::move(speculator)) {}

Engine::Engine(const TrainerConfig& config, const EngineOptions& options, ModelRunner runner,
               bool owns_parameters, std::unique_ptr<Speculator> speculator)
    : options_(resolved(options, config)),
      owns_parameters_(owns_parameters),
      max_length_(options_.max_length),
      runner_(std::move(runner)),
      no_prefix_cache_(options_.max_source > 0       ? "what is computed of a text depends on its source"
                       : runner_.uses_sequence_ids() ? "a cache keeps its keys and values for one text alone"
                                                     : ""),
      speculator_(std::move(speculator)),
      pool_(pages_of(options_, runner_), options_.page_size,
            options_.prefix_cache && no_prefix_cache_.empty()),
      slots_(static_cast<std::size_t>(runner_.lora_slots().slots)) {
  max_length_ = std::min(max_length_, pool_.size() * pool_.page_size());
  if (options_.draft_tokens == 0)
    speculator_.reset();
  else if (!speculator_)
    speculator_ = std::make_unique<PromptLookup>();
  counts_.checkpoint_step = options_.checkpoint_step;
  publish();
}

Engine::~Engine() {
  if (connector_) connector_->when_arrived({});
  receive();
  while (!active_.empty()) finish(*active_.back(), FinishReason::cancelled);
  for (const auto& adapter : loading_) adapter->loaded("the engine has ended");
}

void Engine::check(const Request& request) const {
  const auto is_token = [&](std::int32_t id) { return id >= 0 && id < vocabulary(); };
  const std::string below = "must be below the model's vocabulary of " + std::to_string(vocabulary());
  if (!request.events) throw Error("request", "must have events", "none");
  if (request.prompt.empty()) throw Error("prompt", "must hold at least one token", "none");
  for (const auto* ids : {&request.prompt, &request.source})
    for (const std::int32_t id : *ids)
      if (!is_token(id)) throw Error("prompt", "token ids " + below, "id " + std::to_string(id));
  const auto source = static_cast<std::int64_t>(request.source.size());
  if ((source > 0) != (max_source() > 0) || source > max_source())
    throw Error("source",
                max_source() > 0 ? "must hold 1 to " + std::to_string(max_source()) + " tokens"
                                 : std::string("must be left out for a model without an encoder"),
                std::to_string(source));
  if (request.embed && embedding_size() == 0)
    throw Error("embed", "needs an engine with a pooling of hidden states", "none");
  if (request.embed && (request.max_tokens != 0 || request.score_prompt))
    throw Error("embed", "must be all that is asked for: neither tokens nor scores");
  if (request.pages_from) {
    const std::int64_t size = options_.page_size, given = static_cast<std::int64_t>(request.prompt.size());
    if (!options_.prefix_cache || !no_prefix_cache_.empty())
      throw Error("pages", "need an engine with a prefix cache", "none");
    if (given % size != 0 || *request.pages_from < 0 || *request.pages_from >= given / size)
      throw Error("pages",
                  "must be of whole pages of " + std::to_string(size) + " tokens, from one of them on",
                  std::to_string(given) + " tokens, from page " + std::to_string(*request.pages_from));
    if (request.max_tokens != 0 || request.score_prompt || request.embed || !request.adapter.empty())
      throw Error("pages", "must be all that is asked for, and of the model alone");
  }
  if (request.max_tokens < 0)
    throw Error("max-tokens", "must be at least 0", std::to_string(request.max_tokens));
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt + (request.max_tokens > 0 ? 1 : 0) > max_length_)
    throw Error(
        "prompt",
        "must leave room for a token in the longest sequence, of " + std::to_string(max_length_) + " tokens",
        std::to_string(prompt) + " tokens");
  if (request.top < 0 || request.top > vocabulary())
    throw Error("top", "must be from 0 to the model's vocabulary of " + std::to_string(vocabulary()),
                std::to_string(request.top));
  trainer::check(request.sampler);
  for (const auto& [id, bias] : request.sampler.logit_bias)
    if (!is_token(id)) throw Error("logit-bias", "token ids " + below, "id " + std::to_string(id));
}

RequestId Engine::submit(Request request) {
  check(request);
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) throw hal::DeviceLost("engine", "must be able to compute", lost_);
  const std::int64_t most = options_.max_sequences + options_.max_waiting;
  if (unfinished_ >= most)
    throw EngineBusy("engine", "at most " + std::to_string(most) + " requests run and wait",
                     std::to_string(unfinished_));
  std::shared_ptr<const Adapter> with;
  if (!request.adapter.empty()) {
    const auto found = adapters_.find(request.adapter);
    if (found == adapters_.end()) throw unknown_adapter(request.adapter, adapters_);
    with = found->second;
  }
  submitted_.push_back(std::make_unique<Active>(last_ + 1, std::move(request), options_.pooling));
  submitted_.back()->with = std::move(with);
  ++unfinished_;
  ++published_.waiting;
  wake_.notify_all();
  return ++last_;
}

void Engine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(id);
  wake_.notify_all();
}

EngineCounters Engine::counters() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

void Engine::publish() {
  counts_.running =
      std::count_if(active_.begin(), active_.end(), [](const auto& each) { return each->running; });
  counts_.pages = pool_.size();
  counts_.pages_in_use = pool_.in_use();
  const std::lock_guard lock(mutex_);
  counts_.waiting = static_cast<std::int64_t>(active_.size() + submitted_.size()) - counts_.running;
  counts_.adapters = static_cast<std::int64_t>(adapters_.size());
  if (connector_) {
    counts_.kv_transfer.connected = connector_->connected();
    counts_.kv_transfer.refusals = connector_->refusals();
  }
  published_ = counts_;
  unfinished_ = counts_.running + counts_.waiting;
}

void Engine::finish(Active& active, FinishReason reason, const std::string& error) {
  pool_.drop(active.pages);
  if (active.fetching) connector_->cancel(active.id());
  const auto found =
      std::find_if(active_.begin(), active_.end(), [&](const auto& each) { return each.get() == &active; });
  const std::unique_ptr<Active> ended = std::move(*found);
  active_.erase(found);
  if (speculator_) speculator_->finished(ended->id());
  publish();  // whoever hears of the end may look at the counters, and send the next
  ended->request.events->on_finish(reason, ended->usage, error);
}

void Engine::receive() {
  std::vector<RequestId> cancelled;
  const std::size_t before = active_.size();
  {
    const std::lock_guard lock(mutex_);
    std::move(submitted_.begin(), submitted_.end(), std::back_inserter(active_));
    submitted_.clear();
    cancelled.swap(cancelled_);
    if (new_weights_.weights) weights_ = std::exchange(new_weights_, {});
    std::move(new_adapters_.begin(), new_adapters_.end(), std::back_inserter(loading_));
    new_adapters_.clear();
  }
  if (connector_ && lost_.empty())
    for (std::size_t i = before; i < active_.size(); ++i) fetch(*active_[i]);
  const auto end_where = [&](FinishReason reason, const auto& ends) {
    std::vector<Active*> ending;
    for (const auto& each : active_)
      if (ends(*each)) ending.push_back(each.get());
    for (Active* each : ending) finish(*each, reason);
  };
  std::sort(cancelled.begin(), cancelled.end());
  if (!cancelled.empty())
    end_where(FinishReason::cancelled, [&](const Active& each) {
      return std::binary_search(cancelled.begin(), cancelled.end(), each.id());
    });
  const auto now = std::chrono::steady_clock::now();
  end_where(FinishReason::deadline,
            [&](const Active& each) { return each.request.deadline && *each.request.deadline <= now; });
  end_where(FinishReason::length, [](const Active& each) {
    const Request& request = each.request;
    return request.max_tokens == 0 && !request.score_prompt && !request.embed && !request.pages_from;
  });
}

void Engine::set_weights(std::shared_ptr<const StoredTensors> weights, std::int64_t checkpoint_step) {
  if (!owns_parameters_)
    throw Error("engine", "the parameters of its session must be changed there", "others");
  if (connector_) throw Error("engine", "must keep its parameters where pages come from another", "others");
  check_parameters(*weights, runner_.plan());
  const std::lock_guard lock(mutex_);
  new_weights_ = {std::move(weights), checkpoint_step};
  wake_.notify_all();
}

bool Engine::any_began() const {
  return std::any_of(active_.begin(), active_.end(), [](const auto& each) { return each->began; });
}

void Engine::parameters_changed(std::int64_t checkpoint_step) {
  if (any_began())
    throw Error("engine", "no request may have begun when its parameters change",
                std::to_string(active_.size()) + " that run or wait");
  if (connector_) throw Error("engine", "must keep its parameters where pages come from another", "others");
  pool_.forget_all();
  ++counts_.weight_updates;
  counts_.checkpoint_step = checkpoint_step;
  publish();
}

// Whether it read them.
bool Engine::take_weights() {
  if (!weights_.weights || any_began()) return false;
  const NewWeights taken = std::exchange(weights_, {});
  try {
    runner_.load(*taken.weights);
  } catch (const std::exception& error) {
    lose(error.what());  // some of the old ones may be gone
    return true;
  }
  pool_.forget_all();
  ++counts_.weight_updates;
  counts_.checkpoint_step = taken.step;
  return true;
}

void Engine::load_adapter(const std::string& name, std::shared_ptr<const LoraAdapter> adapter, bool replace,
                          std::function<void(const std::string& error)> loaded) {
  const LoraSlotsOfPlan& slots = runner_.lora_slots();
  const std::string where = "adapter '" + name + "'";
  if (slots.slots == 0) throw Error(where, "needs a model with slots for adapters", "none");
  if (name.empty() || name.size() > kMaxName ||
      std::any_of(name.begin(), name.end(), [](char c) { return c <= 32 || c >= 127; }))
    throw Error(
        "adapter",
        "the name must be of 1 to " + std::to_string(kMaxName) + " printable ASCII characters without spaces",
        std::to_string(name.size()) + " bytes");
  check_fits(*adapter, slots, where);
  auto made = std::make_shared<Adapter>();
  made->weights = std::move(adapter);
  made->loaded = loaded ? std::move(loaded) : [](const std::string&) {};
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) throw hal::DeviceLost("engine", "must be able to compute", lost_);
  if (adapters_.contains(name)) {
    if (!replace) throw Error(where, "must be the name of no adapter that is loaded");
  } else if (static_cast<std::int64_t>(adapters_.size()) >= slots.slots) {
    throw Error(where,
                "there must be a free slot of " + std::to_string(slots.slots) +
                    "; unload an adapter, or serve with more (--max-loras)",
                "none");
  }
  adapters_[name] = made;
  new_adapters_.push_back(std::move(made));
  published_.adapters = static_cast<std::int64_t>(adapters_.size());
  wake_.notify_all();
}

void Engine::unload_adapter(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) throw unknown_adapter(name, adapters_);
  adapters_.erase(found);
  published_.adapters = static_cast<std::int64_t>(adapters_.size());
}

std::vector<std::string> Engine::adapters() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, unused] : adapters_) names.push_back(name);
  return names;
}

// Whether it loaded any.
bool Engine::take_adapters() {
  bool any = false;
  for (std::shared_ptr<Adapter>& each : std::exchange(loading_, {})) {
    std::shared_ptr<Adapter> adapter =
        std::move(each);  // its slot is free at the end where nobody needs it any more
    if (adapter.use_count() == 1) {
      adapter->loaded({});
      continue;
    }
    const auto slot =
        std::find_if(slots_.begin(), slots_.end(), [](const auto& each) { return each.expired(); });
    if (slot == slots_.end()) {
      loading_.push_back(std::move(adapter));
      continue;
    }
    const auto index = static_cast<std::int32_t>(slot - slots_.begin());
    std::string failed;
    try {
      runner_.load_adapter(index, *adapter->weights);
      adapter->slot = index;
      adapter->root = pool_.new_root();
      *slot = adapter;
    } catch (const std::exception& error) {
      failed = error.what();
    }
    adapter->weights.reset();
    any = true;
    if (!failed.empty()) lose(failed);  // only the device can fail here
    std::exchange(adapter->loaded, {})(failed);
  }
  return any;
}

bool Engine::step() {
  receive();
  bool updated = take_weights();
  updated = take_adapters() || updated;
  try {
    updated = take_pages() || updated;
    send_known_pages();
  } catch (const std::exception& error) {
    lose(error.what());  // only the device can fail here
    return true;
  }
  if (active_.empty()) {
    if (updated) publish();
    return updated;
  }
  updated = compute() || updated;
  publish();
  return updated;
}

// Drafts of the sequences that have one token to compute, for the rows that are left of a step.
void Engine::propose() {
  if (!speculator_) return;
  std::vector<Active*> decoding;
  for (const auto& each : active_)
    if (each->running && each->pending() == 1) decoding.push_back(each.get());
  const std::int64_t budget = runner_.rows() - static_cast<std::int64_t>(decoding.size());
  if (budget <= 0) return;
  std::vector<Active*> asked;
  std::vector<DraftRequest> requests;
  for (Active* each : decoding) {
    // The model draws one token more than those that it is to draw alike.
    const std::int64_t left =
        std::min(each->request.max_tokens - each->usage.completion_tokens, max_length_ - each->size()) - 1;
    const std::int64_t most = each->draft_length.next(std::min({options_.draft_tokens, budget, left}));
    if (most <= 0) continue;
    asked.push_back(each);
    requests.push_back({each->id(), each->tokens, each->prompt, &each->request.sampler, most});
  }
  if (requests.empty()) return;
  std::vector<std::vector<std::int32_t>> proposed = speculator_->propose(requests, budget);
  for (std::size_t i = 0; i < asked.size(); ++i) asked[i]->drafts = std::move(proposed[i]);
}

// Nothing can be computed any more.
void Engine::lose(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    lost_ = what;
    std::move(submitted_.begin(), submitted_.end(), std::back_inserter(active_));
    submitted_.clear();
    std::move(new_adapters_.begin(), new_adapters_.end(), std::back_inserter(loading_));
    new_adapters_.clear();
  }
  for (const auto& adapter : std::exchange(loading_, {})) adapter->loaded(what);
  while (!active_.empty()) finish(*active_.front(), FinishReason::error, what);
}

// Whether there was something to do: not where all requests wait for pages.
bool Engine::compute() {
  try {
    propose();
  } catch (const hal::DeviceLost& lost) {
    lose(lost.what());
    return true;
  } catch (const std::exception&) {
    // Texts need no guesses to go on.
  }
  std::vector<Sequence*> sequences;
  bool idle = true;
  for (const auto& each : active_) {
    if (each->fetching) continue;
    idle = false;
    if ((weights_.weights && !each->began) || (each->with && each->with->slot < 0)) continue;
    if (each->with) {
      each->adapter = each->with->slot;
      each->root = each->with->root;
    }
    sequences.push_back(each.get());
  }
  // Where all wait for a slot of requests that are not received yet.
  if (sequences.empty()) return !idle;
  const ScheduledStep step =
      schedule(sequences, pool_,
               {.tokens = options_.step_tokens, .rows = runner_.rows(), .sequences = options_.max_sequences});
  if (step.chunks.empty()) throw std::logic_error("The scheduler has requests but found nothing to compute.");
  counts_.preemptions += static_cast<std::int64_t>(step.preempted.size());
  for (Sequence* sequence : step.admitted) {
    auto& active = static_cast<Active&>(*sequence);
    active.known = active.found / options_.page_size;
    if (std::exchange(active.began, true)) continue;
    active.usage.cached_tokens = active.found;
    counts_.cached_tokens += active.found;
    counts_.prompt_tokens += active.usage.prompt_tokens;
  }
  const auto embeds = [](const Chunk& chunk) {
    return static_cast<const Active&>(*chunk.sequence).request.embed;
  };
  std::span<const float> logits, hidden_states;
  try {
    for (Sequence* sequence : step.admitted)
      if (max_source() > 0) runner_.encode(*sequence, static_cast<Active&>(*sequence).request.source);
    logits = runner_.run(step.chunks);
    if (std::any_of(step.chunks.begin(), step.chunks.end(), embeds)) hidden_states = runner_.hidden_states();
  } catch (const hal::DeviceLost& lost) {
    lose(lost.what());
    return true;
  } catch (const std::exception& error) {
    for (const Chunk& chunk : step.chunks)
      finish(static_cast<Active&>(*chunk.sequence), FinishReason::error, error.what());
    return true;
  }
  ++counts_.steps;
  for (const Chunk& chunk : step.chunks) {
    const std::size_t count = static_cast<std::size_t>(chunk.rows * vocabulary());
    const std::size_t states =
        hidden_states.empty() ? 0 : static_cast<std::size_t>(chunk.count * runner_.hidden_size());
    advance(static_cast<Active&>(*chunk.sequence), chunk, logits.first(count), hidden_states.first(states));
    logits = logits.subspan(count);
    hidden_states = hidden_states.subspan(states);
  }
  return true;
}

// Adds hidden states of the tokens from `first` on. Those of a text that was preempted come again.
void Engine::pool(Active& active, std::int64_t first, std::span<const float> hidden_states) {
  const auto width = static_cast<std::size_t>(runner_.hidden_size());
  active.embedding.resize(width);
  for (std::int64_t at = first; !hidden_states.empty(); ++at, hidden_states = hidden_states.subspan(width)) {
    if (at < active.pooled) continue;
    active.pooled = at + 1;
    if (options_.pooling == Pooling::last && at + 1 < active.size()) continue;
    for (std::size_t i = 0; i < width; ++i) active.embedding[i] += hidden_states[i];
  }
}

// The request ends.
void Engine::embed(Active& active) {
  const double count = options_.pooling == Pooling::mean ? static_cast<double>(active.size()) : 1;
  std::vector<float> embedding;
  for (const double sum : active.embedding) embedding.push_back(static_cast<float>(sum / count));
  if (!std::all_of(embedding.begin(), embedding.end(), [](float value) { return std::isfinite(value); }))
    return finish(active, FinishReason::error, "an embedding must be finite; some of its numbers are not");
  active.request.events->on_embedding(embedding);
  finish(active, FinishReason::stop);
}

// `logits` has a row of each token that they were wanted of; `hidden_states` one of each token, where some text is embedded.
void Engine::advance(Active& active, const Chunk& chunk, std::span<const float> logits,
                     std::span<const float> hidden_states) {
  const auto next_row = [&] {
    const auto width = static_cast<std::size_t>(vocabulary());
    const std::span<const float> row = logits.first(width);
    logits = logits.subspan(width);
    return row;
  };
  const std::vector<std::int32_t> drafts = std::exchange(active.drafts, {});
  const std::int64_t first = active.computed, size = active.size(), end = first + chunk.count,
                     drafted = std::max<std::int64_t>(end - size, 0);
  active.computed = std::min(end, size);
  keep_pages(active);
  if (active.request.pages_from) {
    try {
      if (!send_pages(active))
        finish(active, FinishReason::stop);
      else if (end >= size)
        finish(active, FinishReason::length);
    } catch (const std::exception& error) {
      finish(active, FinishReason::error, error.what());
    }
    return;
  }
  if (active.request.embed) {
    pool(active, first, hidden_states);
    if (end >= size) embed(active);
    return;
  }
  for (std::int64_t at = first; at < std::min(end, size - 1); ++at) {
    if (!active.wants_logits(at)) continue;
    active.scores.push_back(
        token_score(next_row(), active.tokens[static_cast<std::size_t>(at) + 1], active.request.top));
    active.scored = at + 1;
  }
  if (end < size) return;
  counts_.drafts += drafted > 0;
  counts_.draft_tokens += drafted;
  std::int64_t accepted = 0;
  while (draw(active, next_row())) {
    if (accepted < drafted && active.tokens.back() == drafts[static_cast<std::size_t>(accepted)]) {
      // It was computed behind the right tokens, and so are the logits of what follows it.
      ++accepted;
      ++counts_.accepted_tokens;
      ++active.computed;
      keep_pages(active);
      continue;
    }
    active.draft_length.verified(drafted, accepted);
    return;
  }
}

// Appends a token; false = the request has ended and is gone.
bool Engine::draw(Active& active, std::span<const float> logits) {
  const Request& request = active.request;
  RequestEvents& events = *request.events;
  if (request.score_prompt && active.usage.completion_tokens == 0) {
    events.on_prompt(active.scores);
    active.scores = {};
    if (request.max_tokens == 0) {
      finish(active, FinishReason::length);
      return false;
    }
  }
  const std::span<const std::int32_t> tokens = active.tokens;
  const auto prompt = static_cast<std::size_t>(active.prompt);
  TokenScore token;
  try {
    token.id =
        sample_token(logits, request.sampler, active.size(), {tokens.first(prompt), tokens.subspan(prompt)},
                     request.constraint ? request.constraint->allowed() : std::span<const std::uint64_t>());
    if (request.logprobs) token = token_score(logits, token.id, request.top);
    if (request.constraint) request.constraint->accept(token.id);
  } catch (const std::exception& error) {
    finish(active, FinishReason::error, error.what());
    return false;
  }
  active.tokens.push_back(token.id);
  ++active.usage.completion_tokens;
  ++counts_.generation_tokens;
  const bool goes_on = events.on_token(token);
  const std::vector<std::int32_t>& ends = request.end_tokens;
  if (!goes_on || std::find(ends.begin(), ends.end(), token.id) != ends.end() ||
      (request.constraint && request.constraint->ended()))
    finish(active, FinishReason::stop);
  else if (active.usage.completion_tokens == request.max_tokens || active.size() == max_length_)
    finish(active, FinishReason::length);
  else
    return true;
  return false;
}

// Pages that are full now are found from now on.
void Engine::keep_pages(Active& active) {
  const std::int64_t size = options_.page_size;
  for (; (active.known + 1) * size <= active.computed; ++active.known) {
    const auto index = static_cast<std::size_t>(active.known);
    Page& page = active.pages[index];
    page = pool_.keep(page, index == 0 ? kNoPage : active.pages[index - 1],
                      std::span(active.tokens)
                          .subspan(index * static_cast<std::size_t>(size), static_cast<std::size_t>(size)),
                      active.root);
  }
}

// Whether there is news for the thread that steps; under the lock.
bool Engine::is_awaited() const {
  return !submitted_.empty() || !cancelled_.empty() || new_weights_.weights || !new_adapters_.empty() ||
         pages_arrived_;
}

void Engine::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (step()) continue;
    // Of requests that wait for pages.
    std::optional<std::chrono::steady_clock::time_point> deadline;
    for (const auto& each : active_)
      if (const auto& its = each->request.deadline; its && (!deadline || *its < *deadline)) deadline = its;
    std::unique_lock lock(mutex_);
    const auto wakes = [&] { return is_awaited(); };
    if (deadline)
      wake_.wait_until(lock, stop, *deadline, wakes);
    else
      wake_.wait(lock, stop, wakes);
  }
}

}  // namespace meshloom::trainer
