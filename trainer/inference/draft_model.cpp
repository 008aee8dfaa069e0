#include "trainer/inference/draft_model.h"

#include <algorithm>
#include <utility>

namespace meshloom::trainer {
namespace {

EngineOptions draft_options(EngineOptions options, std::int64_t max_length) {
  options.max_length = max_length;
  options.draft_tokens = 0;
  options.pooling = Pooling::none;
  options.batch_invariant = false;  // a guess need not be
  return options;
}

}  // namespace

DraftModel::DraftModel(const TrainerConfig& config, EngineOptions options, std::int64_t max_length,
                       hal::Device& device, const kernels::Catalog& catalog, const StoredTensors& weights)
    : options_(draft_options(options, max_length)),
      runner_(config, runner_options(options_, config), device, catalog, weights),
      pool_(runner_options(options_, config).pages, options_.page_size, /*prefix_cache=*/false) {
  for (auto id = static_cast<std::int32_t>(options_.max_sequences); id-- > 0;) free_ids_.push_back(id);
}

void DraftModel::finished(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  pool_.drop(found->second.pages);
  free_ids_.push_back(found->second.sequence_id);
  sequences_.erase(found);
}

// What was computed for guesses that came true stays.
Sequence* DraftModel::follow(const DraftRequest& request) {
  if (!sequences_.count(request.id)) {
    if (free_ids_.empty()) return nullptr;
    sequences_[request.id].sequence_id = free_ids_.back();
    free_ids_.pop_back();
  }
  Sequence& sequence = sequences_[request.id];
  const auto size = static_cast<std::int64_t>(request.tokens.size());
  const auto agree = std::mismatch(sequence.tokens.begin(), sequence.tokens.end(), request.tokens.begin(),
                                   request.tokens.end());
  // At least the last token is computed, as its logits are wanted.
  sequence.computed = runner_.kept(
      sequence, std::min({sequence.computed, static_cast<std::int64_t>(agree.first - sequence.tokens.begin()),
                          size - 1}));
  sequence.tokens.assign(request.tokens.begin(), request.tokens.end());
  sequence.prompt = request.prompt;
  return &sequence;
}

bool DraftModel::take_pages(Sequence& sequence, std::int64_t tokens) {
  while (static_cast<std::int64_t>(sequence.pages.size()) < pool_.pages_of(tokens)) {
    const std::optional<Page> page = pool_.take();
    if (!page) return false;
    sequence.pages.push_back(*page);
  }
  return true;
}

// Computes the tokens that the drafts lack and draws one more of each; those that get none are done.
void DraftModel::step(std::vector<Draft>& drafts) {
  std::vector<Chunk> chunks;
  std::vector<Draft> going_on;
  std::int64_t tokens = options_.step_tokens, rows = runner_.rows();
  for (Draft& draft : drafts) {
    Sequence& sequence = *draft.sequence;
    const std::int64_t count = std::min(sequence.pending(), tokens);
    if (count == 0 || rows == 0 || !take_pages(sequence, sequence.computed + count)) continue;
    const bool whole = count == sequence.pending();
    chunks.push_back({&sequence, count, whole ? 1 : 0});
    if (whole) going_on.push_back(draft);
    tokens -= count;
    rows -= whole ? 1 : 0;
  }
  drafts.clear();
  if (chunks.empty()) return;
  std::span<const float> logits = runner_.run(chunks);
  for (const Chunk& chunk : chunks) chunk.sequence->computed += chunk.count;
  for (Draft& draft : going_on) {
    Sequence& sequence = *draft.sequence;
    const std::span<const float> row = logits.first(static_cast<std::size_t>(vocabulary()));
    logits = logits.subspan(row.size());
    const std::span<const std::int32_t> so_far = sequence.tokens;
    const auto prompt = static_cast<std::size_t>(sequence.prompt);
    std::int32_t token = 0;
    try {
      token = sample_token(row, *draft.request->sampler, sequence.size(),
                           {so_far.first(prompt), so_far.subspan(prompt)});
    } catch (const Error&) {
      continue;  // no logit is finite: it cannot guess here
    }
    sequence.tokens.push_back(token);
    draft.proposed->push_back(token);
    if (static_cast<std::int64_t>(draft.proposed->size()) < draft.most) drafts.push_back(draft);
  }
}

std::vector<std::vector<std::int32_t>> DraftModel::propose(std::span<const DraftRequest> requests,
                                                           std::int64_t budget) {
  std::vector<std::vector<std::int32_t>> proposed(requests.size());
  std::vector<Draft> drafts;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::int64_t most = std::min(requests[i].most, budget);
    if (most == 0) break;
    Sequence* sequence = follow(requests[i]);
    if (!sequence) continue;
    budget -= most;
    drafts.push_back({sequence, &requests[i], most, &proposed[i]});
  }
  while (!drafts.empty()) step(drafts);
  return proposed;
}

}  // namespace meshloom::trainer
