#include "layers/cache/paged_cache.h"

#include "hal/dtype.h"
#include "kernels/index_copy/index_copy.h"
#include "layers/core/inference_step.h"

namespace meshloom::layers {

void PagedCache::Config::fields(FieldVisitor& v) {
  v("dtype", dtype,
    {"The type of what is kept: that of the activations, or one of its own.",
     one_of("activations", "f32", "bf16", "f16")});
}

std::unique_ptr<Module> PagedCache::Config::build(const Place& place) const {
  return std::make_unique<PagedCache>(*this, place);
}

PagedCache::PagedCache(const Config& config, const Place& place) : KVCache(place), dtype_(config.dtype) {
  if (dtype_ != "activations" && dtype_ != "f32" && dtype_ != "bf16" && dtype_ != "f16")
    fail("dtype must be activations, f32, bf16 or f16", "'" + dtype_ + "'");
}

Tensor PagedCache::attend(Context& ctx, Tensor q, Tensor k, Tensor v,
                          const kernels::PagedAttentionOptions& options) {
  const InferenceStep& step = ctx.get<InferenceStep>("InferenceStep");
  const kernels::DType dtype = dtype_ == "activations" ? step.dtype : hal::dtype_from_string(dtype_);
  const auto keep = [&](const char* name, Tensor x) {
    const Tensor pool = ctx.cache(name, {dtype, {step.pages, step.page_size, x.dim(1), x.dim(2)}});
    const Tensor next = kernels::index_copy(pool, x, step.slots);
    ctx.update_cache(pool, next);
    return next;
  };
  const Tensor keys = keep("keys", k), values = keep("values", v);
  return kernels::paged_attention(q, keys, values, step.page_table, step.query_starts, step.lengths, options);
}

void add_paged_cache_classes(ClassTable& classes) { classes.add<PagedCache::Config>(); }

}  // namespace meshloom::layers
