#include <cmath>
#include <utility>

#include "hal/error.h"
#include "kernels/catalog.h"
#include "kernels/flash_attention/parts.h"
#include "kernels/rules.h"

namespace meshloom::kernels {
namespace {

// The checks that both ops share.
void check_qkv(const Rules& rules) {
  rules.attributes({"scale"}, {"causal"});
  rules.require(rules.number("scale") != 0, "scale must not be 0", "0");
  rules.floats({0, 1, 2});
  for (int i = 0; i < 3; ++i) rules.rank(i, 4, 4);
  const TensorType &q = rules[0], &k = rules[1];
  rules.shape(2, k.shape);
  rules.require(k.dim(0) == q.dim(0) && k.dim(3) == q.dim(3),
                "q and k must have the same batch and head size", to_string(q) + " and " + to_string(k));
  rules.require(q.dim(2) % k.dim(2) == 0, "the heads of q must be a multiple of the heads of k and v",
                std::to_string(q.dim(2)) + " and " + std::to_string(k.dim(2)));
  rules.require(!rules.flag("causal") || k.dim(1) >= q.dim(1),
                "causal attention needs at least as many keys as queries",
                std::to_string(k.dim(1)) + " keys for " + std::to_string(q.dim(1)) + " queries");
}

TensorType lse_type(const TensorType& q) { return {DType::f32, {q.dim(0), q.dim(2), q.dim(1)}}; }

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("flash_attention", inputs, attrs);
  rules.inputs({"q", "k", "v"});
  check_qkv(rules);
  return {rules[0], lse_type(rules[0])};
}

std::vector<TensorType> infer_grad(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("flash_attention_grad", inputs, attrs);
  rules.inputs({"q", "k", "v", "o", "lse", "do"});
  check_qkv(rules);
  rules.floats({0, 3, 5});
  rules.dtype(4, DType::f32);
  for (int i = 3; i < 6; ++i) rules.shape(i, i == 4 ? lse_type(rules[0]).shape : rules[0].shape);
  return {rules[0], rules[1], rules[2]};
}

double per_pair(const CallView& call) {
  const AttentionDims d = attention_dims(call);
  return static_cast<double>(d.b) * static_cast<double>(d.h) * static_cast<double>(d.d) *
         static_cast<double>(d.visible_pairs());
}
double flops(const CallView& call) { return 4 * per_pair(call); }
double flops_grad(const CallView& call) { return 10 * per_pair(call); }

std::vector<Tensor> gradient(const GradientArgs& args) {
  if (args.cotangents[1]) throw hal::Error("flash_attention", "has no gradient through lse");
  if (!args.cotangents[0]) return {Tensor{}, Tensor{}, Tensor{}};
  return args.builder.call(
      "flash_attention_grad",
      {args.inputs[0], args.inputs[1], args.inputs[2], args.outputs[0], args.outputs[1], args.cotangents[0]},
      args.call.attrs);
}

// Queries are independent of each other, but a causal mask counts from the last one.
std::string partition(const CallView& call) {
  return attention_dims(call).causal ? "b.h.,b.h.,b.h.->b.h.,bh." : "bsh.,b.h.,b.h.->bsh.,bhs";
}
std::string partition_grad(const CallView& call) {
  return attention_dims(call).causal ? "b.h.,b.h.,b.h.,b.h.,bh.,b.h.->b.h.,b.h.,b.h."
                                     : "bsh.,b.h.,b.h.,bsh.,bhs,bsh.->bsh.,b.h.,b.h.";
}

Narrow narrow(const CallView&) { return {.same = {0, 1, 2}}; }
Narrow narrow_grad(const CallView&) { return {.same = {0, 1, 2, 3, 5}}; }

// Scores are sums over D, then multiplied by scale; the softmax's sums run over T (and S for dk, dv), its
// exponentials turn absolute errors of scores into relative ones.
double score_ulps(const AttentionDims& d) {
  const auto size = static_cast<double>(d.d);
  return 2 * std::sqrt(size) * (1 + std::abs(d.scale) * std::sqrt(size));
}
Tolerance tolerance(const CallView& call) {
  const AttentionDims d = attention_dims(call);
  Tolerance result = sum_tolerance(static_cast<double>(d.t), 16 + score_ulps(d));
  result.scale = 1 / std::sqrt(static_cast<double>(d.t));
  return result;
}
Tolerance tolerance_grad(const CallView& call) {
  const AttentionDims d = attention_dims(call);
  Tolerance result = sum_tolerance(static_cast<double>(d.t + d.s * (d.h / d.kv)), 32 + 2 * score_ulps(d));
  // With a single visible key dq and dk are 0 but for rounding.
  result.scale = 1 / static_cast<double>(d.t);
  return result;
}

}  // namespace

std::int64_t AttentionDims::visible_pairs() const {
  if (!causal) return s * t;
  return s * (t - s) + s * (s + 1) / 2;
}

AttentionDims attention_dims(const CallView& call) {
  const TensorType &q = call.inputs[0], &k = call.inputs[1];
  return {q.dim(0),
          q.dim(1),
          k.dim(1),
          q.dim(2),
          k.dim(2),
          q.dim(3),
          call.attrs.flag("causal"),
          call.attrs.number("scale")};
}

Tensor flash_attention(Tensor q, Tensor k, Tensor v, const FlashAttentionOptions& options) {
  Attrs attrs{{"scale", options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.dim(-1)))}};
  if (options.causal) attrs.set("causal", true);
  return q.builder->call("flash_attention", {q, k, v}, std::move(attrs)).front();
}

void add_flash_attention(Catalog& catalog) {
  catalog.add(Contract{.name = "flash_attention",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = flash_attention_parts::reference,
                       .narrow = narrow,
                       .gradient = gradient,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = flash_attention_parts::cases,
                       .in_place = never_in_place,
                       .random_case = flash_attention_parts::random_case});
  catalog.add(Contract{.name = "flash_attention_grad",
                       .infer = infer_grad,
                       .flops = flops_grad,
                       .bytes = bytes_once,
                       .reference = flash_attention_parts::reference_grad,
                       .narrow = narrow_grad,
                       .partition = partition_grad,
                       .tolerance = tolerance_grad,
                       .cases = flash_attention_parts::cases_grad,
                       .in_place = never_in_place,
                       .make_input = flash_attention_parts::make_input_grad,
                       .random_case = flash_attention_parts::random_grad});
}

}  // namespace meshloom::kernels
