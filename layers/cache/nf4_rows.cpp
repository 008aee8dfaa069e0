#include "layers/cache/nf4_rows.h"

#include "kernels/layout/layout.h"
#include "kernels/nf4_matmul/nf4.h"
#include "kernels/nf4_matmul/nf4_matmul.h"

namespace meshloom::layers {

void Nf4Rows::Config::fields(FieldVisitor& v) {
  v("block", block, {"Neighbouring features of a token's head that share a scale.", positive_multiple_of(8)});
}

std::unique_ptr<Module> Nf4Rows::Config::build(const Place& place) const {
  return std::make_unique<Nf4Rows>(*this, place);
}

Nf4Rows::Nf4Rows(const Config& config, const Place& place) : CacheCodec(place), block_(config.block) {
  if (block_ < 8 || block_ % 8 != 0) fail("block must be a multiple of 8", std::to_string(block_));
}

kernels::PagedRows Nf4Rows::keep(Context& ctx, const std::string& name, Tensor x, const CacheRows& rows) {
  const std::int64_t n = x.dim(0), heads = x.dim(1);
  const kernels::Nf4Rows packed = kernels::nf4_pack(kernels::reshape(x, {n * heads, x.dim(2)}), block_);
  const auto of_tokens = [&](Tensor y) { return kernels::reshape(y, {n, heads, y.dim(1)}); };
  return {.rows = write(ctx, name, kernels::DType::u8, of_tokens(packed.codes), rows),
          .scales = write(ctx, name + "_scales", kernels::DType::f32, of_tokens(packed.scales), rows),
          .block = block_};
}

kernels::PagedRows Nf4Rows::kept(Context& ctx, const std::string& name, std::int64_t heads,
                                 std::int64_t features, const CacheRows& rows) {
  return {.rows = pool(ctx, name, kernels::DType::u8, heads, kernels::nf4::row_bytes(features), rows),
          .scales = pool(ctx, name + "_scales", kernels::DType::f32, heads,
                         kernels::nf4::blocks(features, block_), rows),
          .block = block_};
}

void add_nf4_rows_classes(ClassTable& classes) { classes.add<Nf4Rows::Config>(); }

}  // namespace meshloom::layers
