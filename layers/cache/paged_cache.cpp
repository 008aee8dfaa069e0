#include "layers/cache/paged_cache.h"

#include "layers/core/inference_step.h"

namespace meshloom::layers {

std::unique_ptr<Module> PagedCache::Config::build(const Place& place) const {
  return std::make_unique<PagedCache>(*this, place);
}

Tensor PagedCache::attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                          const kernels::PagedAttentionOptions& options) {
  return attend_to(ctx, q, k, v, rows_of_pages(ctx), ctx.get<InferenceStep>("InferenceStep").page_table,
                   options);
}

void add_paged_cache_classes(ClassTable& classes) { classes.add<PagedCache::Config>(); }

}  // namespace meshloom::layers
