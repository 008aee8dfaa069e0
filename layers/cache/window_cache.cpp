#include "layers/cache/window_cache.h"

#include <algorithm>

#include "layers/core/inference_step.h"

namespace meshloom::layers {

std::unique_ptr<Module> WindowCache::Config::build(const Place& place) const {
  return std::make_unique<WindowCache>(*this, place);
}

Tensor WindowCache::attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                           const kernels::PagedAttentionOptions& options) {
  if (!options.left)
    throw NoCache(display_path(ctx.path()), "WindowCache needs an attention with a sliding window",
                  "a mask that shows all earlier tokens");
  const InferenceStep& step = ctx.get<InferenceStep>("InferenceStep");
  const std::int64_t window = std::min(*options.left, step.length) + step.step_tokens;
  // Where the longest sequence has room, nothing is overwritten.
  kernels::PagedAttentionOptions of_ring = options;
  of_ring.ring = window < step.length;
  return attend_to(ctx, q, k, v, rows_of_sequences(ctx, std::min(window, step.length)), step.sequence_ids,
                   of_ring);
}

void add_window_cache_classes(ClassTable& classes) { classes.add<WindowCache::Config>(); }

}  // namespace meshloom::layers
