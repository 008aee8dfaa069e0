#include <utility>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/gather_matmul/gather_matmul.h"

namespace meshloom::kernels {
namespace {

enum Input : int { kX, kW, kIndices, kResidual };

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("gather_matmul", inputs, attrs);
  rules.attributes({}, {"trans_b", "residual"});
  std::vector<std::string> names{"x", "w", "indices"};
  if (rules.flag("residual")) names.push_back("residual");
  rules.inputs(std::move(names));
  rules.floating(kX);
  rules.floating(kW);
  rules.dtype(kIndices, DType::i32);
  rules.rank(kX, 2, 2);
  rules.rank(kW, 3, 3);
  const bool trans_b = rules.flag("trans_b");
  const std::int64_t m = rules[kX].dim(0), k = rules[kX].dim(1), s = rules[kW].dim(0),
                     n = rules[kW].dim(trans_b ? 1 : 2);
  rules.shape(kW, trans_b ? Shape{s, n, k} : Shape{s, k, n});
  rules.shape(kIndices, {m});
  if (rules.flag("residual")) {
    rules.dtype(kResidual, rules[kX].dtype);
    rules.shape(kResidual, {m, n});
  }
  return {{rules[kX].dtype, {m, n}}};
}

double flops(const CallView& call) {
  const GatherMatmulDims d = gather_matmul_dims(call);
  return 2.0 * static_cast<double>(d.m) * static_cast<double>(d.n) * static_cast<double>(d.k);
}

// Each row reads one matrix, and all rows together no more than there are.
double bytes(const CallView& call) {
  const GatherMatmulDims d = gather_matmul_dims(call);
  double sum = bytes_once(call);
  if (d.m < d.s)
    sum -= static_cast<double>(call.inputs[kW].bytes()) * static_cast<double>(d.s - d.m) /
           static_cast<double>(d.s);
  return sum;
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const GatherMatmulDims d = gather_matmul_dims(call);
  for (std::int64_t m = 0; m < d.m; ++m) {
    const std::int64_t index = inputs[kIndices].as<std::int32_t>()[m];
    const bool chosen = index >= 0 && index < d.s;
    const float* x = inputs[kX].as<float>() + m * d.k;
    for (std::int64_t n = 0; n < d.n; ++n) {
      const float before = d.residual ? inputs[kResidual].as<float>()[m * d.n + n] : 0.0f;
      float& y = outputs[0].as<float>()[m * d.n + n];
      y = before;
      if (!chosen) continue;
      const float* w = inputs[kW].as<float>() + index * d.n * d.k + (d.trans_b ? n * d.k : n);
      const std::int64_t step = d.trans_b ? 1 : d.n;
      double sum = 0;
      for (std::int64_t k = 0; k < d.k; ++k)
        sum += static_cast<double>(x[k]) * static_cast<double>(w[k * step]);
      y = static_cast<float>(d.residual ? static_cast<double>(before) + sum : sum);
    }
  }
}

std::string partition(const CallView& call) {
  const GatherMatmulDims d = gather_matmul_dims(call);
  return std::string("m.,") + (d.trans_b ? ".n.,m" : "..n,m") + (d.residual ? ",mn" : "") + "->mn";
}

LowPrecision low_precision(const CallView& call) {
  if (gather_matmul_dims(call).residual) return {.same = {kX, kResidual}, .any = {kW}};
  return {.same = {kX}, .any = {kW}};
}

Tolerance tolerance(const CallView& call) {
  return sum_tolerance(static_cast<double>(gather_matmul_dims(call).k), 8);
}

std::vector<std::pair<int, int>> in_place(const CallView& call) {
  if (!gather_matmul_dims(call).residual) return {};
  return {{kResidual, 0}};
}

// Runs of rows with one matrix, rows in any order, and some of no matrix on either side.
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index != kIndices) return fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
  const GatherMatmulDims d = gather_matmul_dims(call);
  Rng rng(mix(seed, 2));
  std::int64_t chosen = 0;
  for (std::int64_t m = 0; m < d.m; ++m) {
    if (m == 0 || rng.flip(0.6)) chosen = rng.flip(0.2) ? (rng.flip() ? -1 : d.s) : rng.integer(0, d.s - 1);
    into.as<std::int32_t>()[m] = static_cast<std::int32_t>(chosen);
  }
}

Case make(std::string name, std::int64_t m, std::int64_t s, std::int64_t n, std::int64_t k, bool trans_b,
          bool residual, bool slow = false, DType x = DType::f32, DType w = DType::f32) {
  Case made{std::move(name),
            {{x, {m, k}}, {w, trans_b ? Shape{s, n, k} : Shape{s, k, n}}, {DType::i32, {m}}},
            {},
            slow};
  if (trans_b) made.attrs.set("trans_b", true);
  if (residual) {
    made.attrs.set("residual", true);
    made.inputs.push_back({x, {m, n}});
  }
  return made;
}

std::vector<Case> cases() {
  return {make("one", 1, 1, 1, 1, false, false),
          make("one-tb-residual", 1, 1, 1, 1, true, true),
          make("tail", 13, 3, 37, 29, false, false),
          make("tail-tb", 13, 3, 37, 29, true, false),
          make("tail-residual", 13, 3, 37, 29, false, true),
          make("tail-tb-residual", 13, 3, 37, 29, true, true),
          make("down", 5, 4, 16, 192, true, false),
          make("up", 5, 4, 200, 16, false, true),
          make("rank-1", 7, 2, 70, 1, false, true),
          make("deep", 4, 2, 9, 1031, false, false),
          make("deep-tb", 4, 2, 9, 1031, true, false),
          make("many", 130, 9, 67, 8, false, true),
          make("bf16-w", 9, 3, 40, 35, false, true, false, DType::f32, DType::bf16),
          make("f16-w-tb", 9, 3, 40, 35, true, false, false, DType::f32, DType::f16),
          make("bf16", 9, 3, 48, 32, true, true, false, DType::bf16, DType::bf16),
          make("bf16-f32-w", 9, 3, 47, 33, false, true, false, DType::bf16, DType::f32),
          make("f16", 6, 2, 33, 40, false, true, false, DType::f16, DType::f16),
          make("lora-down-8", 8, 8, 16, 576, true, false, true),
          make("lora-up-8", 8, 8, 1536, 16, false, true, true),
          make("lora-down-128", 128, 8, 16, 1536, true, false, true),
          make("lora-up-128", 128, 8, 576, 16, false, true, true)};
}

Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  const auto dtype = [&] {
    const std::int64_t kind = rng.integer(0, 4);
    return kind == 0 ? DType::bf16 : kind == 1 ? DType::f16 : DType::f32;
  };
  const DType x = dtype(), w = dtype();
  const std::int64_t m = rng.extent(40), s = rng.integer(1, 9), n = rng.extent(150), k = rng.extent(130);
  return make("random", m, s, n, k, rng.flip(), rng.flip(), false, x, w);
}

}  // namespace

GatherMatmulDims gather_matmul_dims(const CallView& call) {
  const TensorType &x = call.inputs[kX], &w = call.inputs[kW];
  const bool trans_b = call.attrs.flag("trans_b");
  return {x.dim(0), w.dim(trans_b ? 1 : 2), x.dim(1), w.dim(0), trans_b, call.attrs.flag("residual")};
}

Tensor gather_matmul(Tensor x, Tensor w, Tensor indices, const GatherMatmulOptions& options) {
  std::vector<Tensor> inputs{x, w, indices};
  Attrs attrs;
  if (options.trans_b) attrs.set("trans_b", true);
  if (options.residual) {
    attrs.set("residual", true);
    inputs.push_back(options.residual);
  }
  return x.builder->call1("gather_matmul", inputs, std::move(attrs));
}

void add_gather_matmul(Catalog& catalog) {
  catalog.add(Contract{.name = "gather_matmul",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes,
                       .reference = reference,
                       .low_precision = low_precision,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = in_place,
                       .make_input = make_input,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels
