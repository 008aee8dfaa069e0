#include "layers/quantized/nf4_linear.h"

#include <cstring>

#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "layers/core/linear.h"
#include "layers/core/projection.h"

namespace meshloom::layers {
namespace {

namespace nf4 = kernels::nf4;

std::int64_t checked(const std::string& path, std::int64_t block) {
  if (block < 8 || block % 8 != 0)
    throw Error(shown(path), "block is a multiple of 8", std::to_string(block));
  return block;
}

constexpr char kUnpacked[] = "unpacked_weight";  // output of a call below experts

// What of the packed weight a parameter keeps.
enum class Part : std::uint8_t { codes, scales, scale_codes, steps, squares, squares_of_double };

// Of the rows as they are after packing.
std::vector<float> squared_lengths(std::span<const float> values, std::vector<float> scales,
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

// Of one matrix (output, input), or of several, one after another.
Packing packing(const Layer::Dims& dims, std::int64_t block, Part part) {
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
      scales = squared_lengths(values, scales, rows, columns, block, part == Part::squares_of_double);
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
      init_(config.init),
      codes_(packed_parameter(
          "weight_codes", {kernels::DType::u8, {dims_.output, nf4::row_bytes(dims_.input)}},
          {dims_.output_axis, dims_.input_axis}, config.init, packing(dims_, block_, Part::codes))),
      scales_(packed_parameter(
          "weight_scales",
          {config.double_quantized ? kernels::DType::u8 : kernels::DType::f32,
           {dims_.output, nf4::blocks(dims_.input, block_)}},
          {dims_.output_axis, dims_.input_axis}, config.init,
          packing(dims_, block_, config.double_quantized ? Part::scale_codes : Part::scales))) {
  if (config.double_quantized)
    steps_ = &packed_parameter("weight_steps", {kernels::DType::f32, {dims_.output}}, {dims_.output_axis},
                               config.init, packing(dims_, block_, Part::steps));
  if (config.bias) bias_ = &parameter("bias", {dims_.output}, {dims_.output_axis}, Constant{0});
}

Tensor Nf4Linear::forward(Context& ctx, Tensor x) {
  check_features(x, dims_.input);
  kernels::Shape shape = x.shape();
  if (shape.size() != 2) x = kernels::reshape(x, {x.type().elements() / dims_.input, dims_.input});
  const Tensor bias = bias_ ? ctx.parameter(*bias_) : Tensor{};
  const Tensor y = of_experts() ? project(ctx, x, unpack(ctx), bias) : times(ctx, x, bias);
  ctx.mark(y, ctx.tag(), {axis::kTokens, dims_.output_axis});
  if (shape.size() == 2) return y;
  shape.back() = dims_.output;
  return kernels::reshape(y, shape);
}

kernels::Nf4Options Nf4Linear::options(Context& ctx) const {
  kernels::Nf4Options options{.columns = dims_.input, .block = block_};
  if (steps_) options.steps = ctx.parameter(*steps_);
  return options;
}

// Products of experts take floats, made anew in the backward pass, once for the layer and an adapter around it.
Tensor Nf4Linear::unpack(Context& ctx) {
  const Tensor weight = kernels::nf4_unpack(ctx.parameter(codes_), ctx.parameter(scales_), options(ctx));
  ctx.output(kUnpacked, weight);
  return ctx.mark(weight, "recompute.weight", {axis::kExpert, dims_.output_axis, dims_.input_axis});
}

Tensor Nf4Linear::times(Context& ctx, Tensor x) {
  if (of_experts()) return kernels::matmul(x, ctx.output_of(kUnpacked), {.trans_b = true});
  return times(ctx, x, {});
}

Tensor Nf4Linear::times(Context& ctx, Tensor x, Tensor bias) {
  kernels::Nf4Options options = this->options(ctx);
  options.trans_b = true;
  options.bias = bias;
  return kernels::nf4_matmul(x, ctx.parameter(codes_), ctx.parameter(scales_), options);
}

void Nf4Linear::keep_squared_lengths() {
  squares_ =
      &packed_parameter("weight_squares", {kernels::DType::f32, {dims_.output}}, {dims_.output_axis}, init_,
                        packing(dims_, block_, steps_ ? Part::squares_of_double : Part::squares));
}

Fold Nf4Linear::fold() const {
  Fold fold{codes_.packing->source, codes_.packing->type.shape, {codes_.path, scales_.path}, {}};
  if (steps_) fold.sources.push_back(steps_->path);
  if (squares_) fold.sources.push_back(squares_->path);  // of no use to it, and gone afterwards
  fold.fold = [dims = dims_, block = block_, with_steps = steps_ != nullptr](const auto& values) {
    const std::vector<std::uint8_t> codes(values[0].begin(), values[0].end());
    std::vector<float> scales = values[1];
    for (std::size_t i = 0; with_steps && i < scales.size(); ++i)
      scales[i] *= values[2][i / (scales.size() / values[2].size())];
    const std::int64_t rows = static_cast<std::int64_t>(codes.size()) / nf4::row_bytes(dims.input);
    std::vector<float> unpacked(static_cast<std::size_t>(rows * dims.input));
    nf4::unpack(codes.data(), scales.data(), rows, dims.input, block, unpacked.data());
    return unpacked;
  };
  return fold;
}

void add_nf4_linear_classes(ClassTable& classes) { classes.add<Nf4Linear::Config>(); }

}  // namespace meshloom::layers
