#include "layers/cache/contiguous_cache.h"

#include "layers/core/inference_step.h"

namespace meshloom::layers {

std::unique_ptr<Module> ContiguousCache::Config::build(const Place& place) const {
  return std::make_unique<ContiguousCache>(*this, place);
}

Tensor ContiguousCache::attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                               const kernels::PagedAttentionOptions& options) {
  const InferenceStep& step = ctx.get<InferenceStep>("InferenceStep");
  return attend_to(ctx, q, k, v, rows_of_sequences(ctx, step.length), step.sequence_ids, options);
}

void add_contiguous_cache_classes(ClassTable& classes) { classes.add<ContiguousCache::Config>(); }

}  // namespace meshloom::layers
