#include "layers/cache/cache_codec.h"

#include "hal/dtype.h"
#include "kernels/index_copy/index_copy.h"
#include "kernels/layout/layout.h"

namespace meshloom::layers {

Tensor flatten_tokens(Tensor x) { return kernels::reshape(x, {x.dim(0) * x.dim(1), x.dim(2), x.dim(3)}); }

Tensor CacheCodec::pool(Context& ctx, const std::string& name, kernels::DType dtype, std::int64_t heads,
                        std::int64_t elements, const CacheRows& rows) {
  return ctx.cache(name, {dtype, {rows.blocks, rows.size, heads, elements}}, rows.unit);
}

Tensor CacheCodec::write(Context& ctx, const std::string& name, kernels::DType dtype, Tensor x,
                         const CacheRows& rows) {
  const Tensor before = pool(ctx, name, dtype, x.dim(1), x.dim(2), rows);
  const Tensor next = kernels::index_copy(before, x, rows.slots);
  ctx.update_cache(before, next);
  return next;
}

void Plain::Config::fields(FieldVisitor& v) {
  v("dtype", dtype,
    {"The type of what is kept: that of the activations, or one of its own.",
     one_of("activations", "f32", "bf16", "f16")});
}

std::unique_ptr<Module> Plain::Config::build(const Place& place) const {
  return std::make_unique<Plain>(*this, place);
}

Plain::Plain(const Config& config, const Place& place) : CacheCodec(place), dtype_(config.dtype) {
  if (dtype_ != "activations" && dtype_ != "f32" && dtype_ != "bf16" && dtype_ != "f16")
    fail("dtype must be activations, f32, bf16 or f16", "'" + dtype_ + "'");
}

kernels::DType Plain::dtype_of(const CacheRows& rows) const {
  return dtype_ == "activations" ? rows.dtype : hal::dtype_from_string(dtype_);
}

kernels::PagedRows Plain::keep(Context& ctx, const std::string& name, Tensor x, const CacheRows& rows) {
  return {.rows = write(ctx, name, dtype_of(rows), x, rows)};
}

kernels::PagedRows Plain::kept(Context& ctx, const std::string& name, std::int64_t heads,
                               std::int64_t features, const CacheRows& rows) {
  return {.rows = pool(ctx, name, dtype_of(rows), heads, features, rows)};
}

void add_cache_codec_classes(ClassTable& classes) { classes.add<Plain::Config>(); }

}  // namespace meshloom::layers
