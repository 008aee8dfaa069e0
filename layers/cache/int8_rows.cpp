#include "layers/cache/int8_rows.h"

#include "kernels/int8_matmul/int8_matmul.h"
#include "kernels/layout/layout.h"

namespace meshloom::layers {

void Int8Rows::Config::fields(FieldVisitor&) {}

std::unique_ptr<Module> Int8Rows::Config::build(const Place& place) const {
  return std::make_unique<Int8Rows>(place);
}

kernels::PagedRows Int8Rows::keep(Context& ctx, const std::string& name, Tensor x, const CacheRows& rows) {
  const std::int64_t n = x.dim(0), heads = x.dim(1), width = x.dim(2);
  const kernels::QuantizedRows quantized = kernels::quantize_rows(kernels::reshape(x, {n * heads, width}));
  return {.rows = write(ctx, name, kernels::DType::i8, kernels::reshape(quantized.values, {n, heads, width}),
                        rows),
          .scales = write(ctx, name + "_scales", kernels::DType::f32,
                          kernels::reshape(quantized.scales, {n, heads, 1}), rows)};
}

kernels::PagedRows Int8Rows::kept(Context& ctx, const std::string& name, std::int64_t heads,
                                  std::int64_t features, const CacheRows& rows) {
  return {.rows = pool(ctx, name, kernels::DType::i8, heads, features, rows),
          .scales = pool(ctx, name + "_scales", kernels::DType::f32, heads, 1, rows)};
}

void add_int8_rows_classes(ClassTable& classes) { classes.add<Int8Rows::Config>(); }

}  // namespace meshloom::layers
