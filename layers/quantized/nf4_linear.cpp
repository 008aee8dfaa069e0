#include "layers/quantized/nf4_linear.h"

#include <cstring>

#include "kernels/matmul/matmul.h"
#include "layers/core/experts.h"
#include "layers/core/linear.h"

namespace meshloom::layers {
namespace {

namespace nf4 = kernels::nf4;

std::int64_t checked(const std::string& path, std::int64_t block) {
  if (block < 8 || block % 8 != 0)
    throw Error(display_path(path), "block must be a positive multiple of 8", std::to_string(block));
  return block;
}

constexpr char kDequantized[] =
    "unpacked_weight";  // the output that a call below a mixture of experts leaves

// The part of the quantised weight that a parameter stores.
enum class Part : std::uint8_t { codes, scales, scale_codes, steps, squares, squares_of_double };

// The squared norms of the rows of the dequantised weight.
std::vector<float> squared_row_norms(std::span<const float> values, std::vector<float> scales,
                                     std::int64_t rows, std::int64_t columns, std::int64_t block,
                                     bool double_quantized) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * nf4::row_bytes(columns)));
  nf4::pack(values.data(), scales.data(), rows, columns, block, codes.data());
  if (double_quantized) {
    const std::int64_t per_row = nf4::blocks(columns, block);
    std::vector<std::uint8_t> scale_codes(scales.size());
    std::vector<float> steps(static_cast<std::size_t>(rows));
    nf4::pack_scales(scales.data(), rows, per_row, scale_codes.data(), steps.data());
    nf4::unpack_scales(scale_codes.data(), steps.data(), rows, per_row, scales.data());
  }
  std::vector<float> unpacked(values.size()), squares(static_cast<std::size_t>(rows));
  nf4::unpack(codes.data(), scales.data(), rows, columns, block, unpacked.data());
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t c = r * columns; c < (r + 1) * columns; ++c)
      sum +=
          static_cast<double>(unpacked[static_cast<std::size_t>(c)]) * unpacked[static_cast<std::size_t>(c)];
    squares[static_cast<std::size_t>(r)] = static_cast<float>(sum);
  }
  return squares;
}

// How a part of the weight is computed, from one matrix (output, input) or from those of several experts.
QuantizedStorage storage_of(const Layer::Dims& dims, std::int64_t block, Part part) {
  const auto pack = [columns = dims.input, block, part](std::span<const float> values,
                                                        std::span<std::byte> into) {
    const std::int64_t rows = static_cast<std::int64_t>(values.size()) / columns;
    const std::int64_t per_row = nf4::blocks(columns, block);
    std::vector<float> scales(static_cast<std::size_t>(rows * per_row)), steps;
    std::vector<std::uint8_t> bytes;
    nf4::block_scales(values.data(), rows, columns, block, scales.data());
    if (part == Part::codes) {
      bytes.resize(into.size());
      nf4::pack(values.data(), scales.data(), rows, columns, block, bytes.data());
    } else if (part == Part::squares || part == Part::squares_of_double) {
      scales = squared_row_norms(values, scales, rows, columns, block, part == Part::squares_of_double);
    } else if (part != Part::scales) {
      bytes.resize(scales.size());
      steps.resize(static_cast<std::size_t>(rows));
      nf4::pack_scales(scales.data(), rows, per_row, bytes.data(), steps.data());
    }
    const void* kept = part == Part::steps ? static_cast<const void*>(steps.data())
                       : part == Part::codes || part == Part::scale_codes
                           ? static_cast<const void*>(bytes.data())
                           : scales.data();
    std::memcpy(into.data(), kept, into.size());
  };
  return {"weight", {kernels::DType::f32, {dims.output, dims.input}}, pack, part == Part::codes};
}

}  // namespace

std::unique_ptr<Module> Nf4Linear::Config::build(const Place& place) const {
  return std::make_unique<Nf4Linear>(*this, place);
}

std::unique_ptr<layers::Config> Nf4Linear::Config::merged_config() const {
  auto linear = std::make_unique<Linear::Config>();
  linear->bias = bias;
  linear->init = init;
  return linear;
}

Nf4Linear::Nf4Linear(const Config& config, const Place& place)
    : Layer(place),
      dims_(config.dims),
      block_(checked(path(), config.block)),
      init_(config.init),
      codes_(quantized_parameter(
          "weight_codes", {kernels::DType::u8, {dims_.output, nf4::row_bytes(dims_.input)}},
          {dims_.output_axis, dims_.input_axis}, config.init, storage_of(dims_, block_, Part::codes))),
      scales_(quantized_parameter(
          "weight_scales",
          {config.double_quantized ? kernels::DType::u8 : kernels::DType::f32,
           {dims_.output, nf4::blocks(dims_.input, block_)}},
          {dims_.output_axis, dims_.input_axis}, config.init,
          storage_of(dims_, block_, config.double_quantized ? Part::scale_codes : Part::scales))) {
  if (config.double_quantized)
    steps_ = &quantized_parameter("weight_steps", {kernels::DType::f32, {dims_.output}}, {dims_.output_axis},
                                  config.init, storage_of(dims_, block_, Part::steps));
  if (config.bias) bias_ = &parameter("bias", {dims_.output}, {dims_.output_axis}, Constant{0});
}

Tensor Nf4Linear::forward(Context& ctx, Tensor x) {
  return map_rows(ctx, x, dims_, [&](Tensor rows) {
    const Tensor bias = bias_ ? ctx.parameter(*bias_) : Tensor{};
    return has_experts() ? project(ctx, rows, dequantize(ctx), bias) : matmul(ctx, rows, bias);
  });
}

kernels::Nf4Options Nf4Linear::options(Context& ctx) const {
  kernels::Nf4Options options{.columns = dims_.input, .block = block_};
  if (steps_) options.steps = ctx.parameter(*steps_);
  return options;
}

// The weights of grouped products have the dtype of the step. They are dequantised once for the layer and its adapter, and again in
// the backward pass.
Tensor Nf4Linear::dequantize(Context& ctx) {
  const Tensor weight = kernels::nf4_unpack(ctx.parameter(codes_), ctx.parameter(scales_), options(ctx));
  ctx.output(kDequantized, weight);
  return ctx.mark(weight, "recompute.weight", {axis::kExpert, dims_.output_axis, dims_.input_axis});
}

Tensor Nf4Linear::matmul(Context& ctx, Tensor x) {
  if (has_experts()) return kernels::matmul(x, ctx.output_of(kDequantized), {.trans_b = true});
  return matmul(ctx, x, {});
}

Tensor Nf4Linear::matmul(Context& ctx, Tensor x, Tensor bias) {
  kernels::Nf4Options options = this->options(ctx);
  options.trans_b = true;
  options.bias = bias;
  return kernels::nf4_matmul(x, ctx.parameter(codes_), ctx.parameter(scales_), options);
}

void Nf4Linear::keep_squared_row_norms() {
  squares_ = &quantized_parameter(
      "weight_squares", {kernels::DType::f32, {dims_.output}}, {dims_.output_axis}, init_,
      storage_of(dims_, block_, steps_ ? Part::squares_of_double : Part::squares));
}

Merge Nf4Linear::merge() const {
  Merge merge{codes_.storage->source, codes_.storage->type.shape, {codes_.path, scales_.path}, {}};
  if (steps_) merge.sources.push_back(steps_->path);
  if (squares_)
    merge.sources.push_back(squares_->path);  // unused, but a source does not remain after the merge
  merge.merge = [dims = dims_, block = block_, with_steps = steps_ != nullptr](const auto& values) {
    const std::vector<std::uint8_t> codes(values[0].begin(), values[0].end());
    std::vector<float> scales = values[1];
    for (std::size_t i = 0; with_steps && i < scales.size(); ++i)
      scales[i] *= values[2][i / (scales.size() / values[2].size())];
    const std::int64_t rows = static_cast<std::int64_t>(codes.size()) / nf4::row_bytes(dims.input);
    std::vector<float> unpacked(static_cast<std::size_t>(rows * dims.input));
    nf4::unpack(codes.data(), scales.data(), rows, dims.input, block, unpacked.data());
    return unpacked;
  };
  return merge;
}

void add_nf4_linear_classes(ClassTable& classes) { classes.add<Nf4Linear::Config>(); }

}  // namespace meshloom::layers
