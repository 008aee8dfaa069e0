#include "layers/adapters/lora.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/grouped_matmul/grouped_matmul.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "layers/core/dropout.h"
#include "layers/core/experts.h"

namespace meshloom::layers {
namespace {

// Added to squared norms, so that a row of zeros can be divided by its norm. An expression below contains it too.
constexpr double kTiny = 1e-20;

double scale_of(const std::string& path, std::int64_t rank, double alpha, const Layer::Dims& dims) {
  if (rank < 1 || rank > std::min(dims.input, dims.output))
    throw Error(path,
                "rank must be between 1 and the smaller size of the adapted layer, " +
                    std::to_string(std::min(dims.input, dims.output)) + "; `except` leaves a layer out",
                std::to_string(rank));
  if (!(alpha > 0) || !std::isfinite(alpha))
    throw Error(path, "alpha must be positive and finite", std::to_string(alpha));
  return alpha / static_cast<double>(rank);
}

// y + s B (A x); below a mixture of experts with the A and B of each row's expert.
Tensor add_low_rank(Context& ctx, Tensor x, Tensor a, Tensor b, double scale, Tensor y) {
  const Tensor down = kernels::scale(project(ctx, x, a), scale);
  if (b.type().rank() == 3) return kernels::add(y, project(ctx, down, b));
  return kernels::matmul(down, b, {.trans_b = true, .residual = y});
}

// x (experts, N) -> (rows, N): for each row that of its expert.
Tensor expert_rows(Context& ctx, Tensor x, std::int64_t rows) {
  const Tensor ones = kernels::constant(ctx.builder(), 1.0, {rows, 1});
  return kernels::grouped_matmul(ones, kernels::reshape(x, {x.dim(0), 1, x.dim(1)}),
                                 ctx.get<ExpertRows>("the rows of each expert").offsets);
}

// W + s B A, row-major (output, input); for experts one such matrix after another, each with its own A and B.
std::vector<double> sum_of(const std::vector<float>& weight, const std::vector<float>& a,
                           const std::vector<float>& b, double scale, std::int64_t input, std::int64_t rank) {
  const auto in = static_cast<std::size_t>(input), r = static_cast<std::size_t>(rank);
  const std::size_t copies = a.size() / r / in, outputs = weight.size() / in / copies;
  std::vector<double> sum(weight.begin(), weight.end());
  for (std::size_t o = 0; o < copies * outputs; ++o)
    for (std::size_t k = 0; k < r; ++k) {
      const float* row = a.data() + (o / outputs * r + k) * in;
      for (std::size_t i = 0; i < in; ++i)
        sum[o * in + i] += scale * static_cast<double>(b[o * r + k]) * static_cast<double>(row[i]);
    }
  return sum;
}

// (output, input), or (experts, output, input).
kernels::Shape merged_shape(const Parameter& b, std::int64_t input) {
  kernels::Shape shape = b.type.shape;
  shape.back() = input;
  return shape;
}

}  // namespace

void LowRankConfig::fields(FieldVisitor& v) {
  v("base", base,
    {"The layer that is adapted; its own parameters are frozen.", means("layer inside a wrapper")});
  v("rank", rank, {"The rank of the learned change, at most the smaller size of the layer.", at_least(1)});
  v("alpha", alpha, {"The change is multiplied by alpha / rank.", above(0)});
  v("dropout", dropout, {"The dropout rate of the adapter's input, in training.", below_one()});
  v("init", init, {"How the adapter's matrix A (rank, input) is initialised; B is initialised to zeros."});
}

std::unique_ptr<Module> Lora::Config::build(const Place& place) const {
  return std::make_unique<Lora>(*this, place);
}

Lora::Lora(const Config& config, const Place& place)
    : Adapter(config, place),
      scale_(scale_of(path(), config.rank, config.alpha, dims_)),
      dropout_(checked_dropout_rate(path(), config.dropout)),
      a_(parameter("lora_a", {config.rank, dims_.input}, {"", dims_.input_axis}, config.init)),
      b_(parameter("lora_b", {dims_.output, config.rank}, {dims_.output_axis, ""}, Constant{0})) {}

Tensor Lora::adapt(Context& ctx, Tensor x, Tensor y) {
  x = dropout(ctx, x, dropout_, "lora_dropout");
  return add_low_rank(ctx, x, ctx.parameter(a_), ctx.parameter(b_), scale_, y);
}

Merge Lora::merge() const {
  const std::string weight = merged_weight();
  return {weight,
          merged_shape(b_, dims_.input),
          {weight, a_.path, b_.path},
          [scale = scale_, input = dims_.input, rank = b_.type.dim(-1)](const auto& values) {
            const std::vector<double> sum = sum_of(values[0], values[1], values[2], scale, input, rank);
            return std::vector<float>(sum.begin(), sum.end());
          }};
}

std::unique_ptr<Module> Dora::Config::build(const Place& place) const {
  return std::make_unique<Dora>(*this, place);
}

Dora::Dora(const Config& config, const Place& place)
    : Adapter(config, place),
      scale_(scale_of(path(), config.rank, config.alpha, dims_)),
      dropout_(checked_dropout_rate(path(), config.dropout)),
      a_(parameter("lora_a", {config.rank, dims_.input}, {"", dims_.input_axis}, config.init)),
      b_(parameter("lora_b", {dims_.output, config.rank}, {dims_.output_axis, ""}, Constant{0})),
      magnitude_(parameter("dora_magnitude", {dims_.output}, {dims_.output_axis}, Constant{1})),
      bias_(base_parameter("bias")) {
  require_weight();
}

Tensor Dora::adapt(Context& ctx, Tensor x, Tensor y) {
  const Tensor a = ctx.parameter(a_), b = ctx.parameter(b_), scaled = kernels::scale(a, scale_);
  const bool experts = a.type().rank() == 3;
  const auto transposed = experts ? std::vector<std::int64_t>{0, 2, 1} : std::vector<std::int64_t>{1, 0};
  const Tensor both = kernels::permute(base_matmul(ctx, scaled), transposed);  // (output, rank)
  const Tensor own = kernels::matmul(b, kernels::matmul(scaled, scaled, {.trans_b = true}));
  const auto [b_x, both_x, own_x] = kernels::inputs<3>();
  const Tensor more = row_sums(kernels::elementwise({b, both, own}, b_x * (both_x + both_x + own_x)));
  constexpr double kSmallest = 1e-20;  // against a division by zero
  // If the change cancels a row of W, rounding may make the sum of squares a little negative: hence the max.
  const auto [magnitude, squares, change] = kernels::inputs<3>();
  const Tensor own_factor =
      kernels::elementwise({ctx.parameter(magnitude_), squared_row_norms(ctx), more},
                           magnitude * sqrt((squares + kSmallest) / (max(squares + change, 0) + kSmallest)));
  y = add_low_rank(ctx, dropout(ctx, x, dropout_, "lora_dropout"), a, b, scale_, y);
  const auto of_rows = [&](Tensor of_outputs) {
    return experts ? expert_rows(ctx, of_outputs, y.dim(0)) : of_outputs;
  };
  const Tensor factor = of_rows(own_factor);
  if (!bias_) return kernels::mul(y, factor);
  const auto [y_x, factor_x, bias_x] = kernels::inputs<3>();
  return kernels::elementwise({y, factor, of_rows(ctx.parameter(*bias_))},
                              (y_x - bias_x) * factor_x + bias_x);
}

Merge Dora::merge() const {
  const std::string weight = merged_weight();
  return {weight,
          merged_shape(b_, dims_.input),
          {weight, a_.path, b_.path, magnitude_.path},
          [scale = scale_, input = dims_.input, rank = b_.type.dim(-1)](const auto& values) {
            const std::vector<double> sum = sum_of(values[0], values[1], values[2], scale, input, rank);
            const auto in = static_cast<std::size_t>(input);
            std::vector<float> merged(sum.size());
            for (std::size_t o = 0; o < sum.size() / in; ++o) {
              double before = kTiny, after = kTiny;
              for (std::size_t i = o * in; i < (o + 1) * in; ++i) {
                before += static_cast<double>(values[0][i]) * static_cast<double>(values[0][i]);
                after += sum[i] * sum[i];
              }
              const double factor = static_cast<double>(values[3][o]) * std::sqrt(before / after);
              for (std::size_t i = o * in; i < (o + 1) * in; ++i)
                merged[i] = static_cast<float>(factor * sum[i]);
            }
            return merged;
          }};
}

void add_lora_classes(ClassTable& classes) {
  classes.add<Lora::Config>();
  classes.add<Dora::Config>();
}

}  // namespace meshloom::layers
