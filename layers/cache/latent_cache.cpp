#include "layers/cache/latent_cache.h"

#include "layers/core/inference_step.h"

namespace meshloom::layers {

std::unique_ptr<Module> LatentCache::Config::build(const Place& place) const {
  return std::make_unique<LatentCache>(*this, place);
}

Tensor LatentCache::attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                           const kernels::PagedAttentionOptions& options) {
  const InferenceStep& step = ctx.get<InferenceStep>("InferenceStep");
  const kernels::PagedRows rows = codec_->keep(ctx, "latents", k, rows_of_pages(ctx));
  return kernels::paged_attention(q, rows, {}, v.dim(2), step.page_table, step.query_starts, step.lengths,
                                  options);
}

void add_latent_cache_classes(ClassTable& classes) { classes.add<LatentCache::Config>(); }

}  // namespace meshloom::layers
