#include "layers/nf4_linear.h"

#include <cstring>

#include "kernels/layout/layout.h"
#include "kernels/nf4_matmul/nf4_matmul.h"
#include "layers/linear.h"

namespace meshloom::layers {
namespace {

namespace nf4 = kernels::nf4;

std::int64_t checked(const std::string& path, std::int64_t block) {
  if (block < 8 || block % 8 != 0)
    throw Error(shown(path), "block is a multiple of 8", std::to_string(block));
  return block;
}

// The weight (output, input) as codes and scales; one of the two is what a parameter keeps.
Packing packing(const Layer::Dims& dims, std::int64_t block, bool codes) {
  const auto pack = [rows = dims.output, columns = dims.input, block, codes](std::span<const float> values,
                                                                             std::span<std::byte> into) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows * nf4::row_bytes(columns)));
    std::vector<float> scales(static_cast<std::size_t>(rows * nf4::blocks(columns, block)));
    nf4::pack(values.data(), rows, columns, block, bytes.data(), scales.data());
    std::memcpy(into.data(), codes ? static_cast<const void*>(bytes.data()) : scales.data(), into.size());
  };
  return {"weight", {kernels::DType::f32, {dims.output, dims.input}}, pack, codes};
}

}  // namespace

std::unique_ptr<Module> Nf4Linear::Config::build(const Place& place) const {
  return std::make_unique<Nf4Linear>(*this, place);
}

std::unique_ptr<layers::Config> Nf4Linear::Config::plain() const {
  auto linear = std::make_unique<Linear::Config>();
  linear->bias = bias;
  linear->init = init;
  return linear;
}

Nf4Linear::Nf4Linear(const Config& config, const Place& place)
    : Layer(place),
      dims_(config.dims),
      block_(checked(path(), config.block)),
      codes_(
          packed_parameter("weight_codes", {kernels::DType::u8, {dims_.output, nf4::row_bytes(dims_.input)}},
                           {dims_.output_axis, dims_.input_axis}, config.init, packing(dims_, block_, true))),
      scales_(packed_parameter(
          "weight_scales", {kernels::DType::f32, {dims_.output, nf4::blocks(dims_.input, block_)}},
          {dims_.output_axis, dims_.input_axis}, config.init, packing(dims_, block_, false))) {
  if (config.bias) bias_ = &parameter("bias", {dims_.output}, {dims_.output_axis}, Constant{0});
}

Tensor Nf4Linear::forward(Context& ctx, Tensor x) {
  check_features(x, dims_.input);
  kernels::Shape shape = x.shape();
  if (shape.size() != 2) x = kernels::reshape(x, {x.type().elements() / dims_.input, dims_.input});
  const Tensor y = kernels::nf4_matmul(x, ctx.parameter(codes_), ctx.parameter(scales_),
                                       {.columns = dims_.input,
                                        .block = block_,
                                        .trans_b = true,
                                        .bias = bias_ ? ctx.parameter(*bias_) : Tensor{}});
  ctx.mark(y, ctx.tag(), {axis::kTokens, dims_.output_axis});
  if (shape.size() == 2) return y;
  shape.back() = dims_.output;
  return kernels::reshape(y, shape);
}

Fold Nf4Linear::fold() const {
  const std::string& weight = codes_.packing->source;
  return {weight,
          {dims_.output, dims_.input},
          {codes_.path, scales_.path},
          [dims = dims_, block = block_](const auto& values) {
            const std::vector<std::uint8_t> codes(values[0].begin(), values[0].end());
            std::vector<float> unpacked(static_cast<std::size_t>(dims.output * dims.input));
            nf4::unpack(codes.data(), values[1].data(), dims.output, dims.input, block, unpacked.data());
            return unpacked;
          }};
}

void add_nf4_linear_classes(ClassTable& classes) { classes.add<Nf4Linear::Config>(); }

}  // namespace meshloom::layers
