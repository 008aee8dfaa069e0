#include <algorithm>
#include <cmath>
#include <utility>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rules.h"
#include "kernels/flash_attention/logit.h"
#include "kernels/flash_attention/parts.h"
#include "kernels/program/sizes.h"

namespace meshloom::kernels {
namespace {

// The optional inputs, in their order: the flag that asks for them and their names.
struct Extra {
  const char* flag;
  std::vector<const char*> names;
};
const std::vector<Extra>& extras() {
  static const std::vector<Extra> all{{"segments", {"q_segments", "k_segments"}},
                                      {"prefix", {"prefix"}},
                                      {"query_offset", {"query_offset"}},
                                      {"sink", {"sink"}},
                                      {"slopes", {"slopes"}},
                                      {"rng_state", {"rng_state"}},
                                      {"bias", {"bias"}},
                                      {"attention_bitmask", {"attention_bitmask"}}};
  return all;
}

void check_rng_state(Rules& rules, int& next) {
  rules.dtype(next, DType::i32);
  rules.shape(next++, {3});
  const double rate = rules.number("dropout");
  rules.require(rate > 0 && rate < 1, "dropout must be between 0 and 1", std::to_string(rate));
  rules.require(rules.integer("key") >= 0, "key must not be negative", std::to_string(rules.integer("key")));
  const std::int64_t words = product("flash_attention, its blocks of words",
                                     {rules[0].dim(2), rules[0].dim(1), (rules[1].dim(1) + 3) / 4});
  rules.require(words < std::int64_t{1} << 32, "dropout draws fewer than 2^32 blocks of words per row",
                std::to_string(words));
}

// The checks that all ops share; `names` are the inputs that every call has.
void check_call(Rules& rules, std::vector<std::string> names, const Attrs& attrs) {
  rules.attributes({"scale"}, {"causal", "left", "right", "soft_cap", "segments", "prefix", "query_offset",
                               "sink", "slopes", "rng_state", "dropout", "key", "bias", "attention_bitmask"});
  int next = static_cast<int>(names.size());
  for (const Extra& extra : extras())
    if (rules.flag(extra.flag)) names.insert(names.end(), extra.names.begin(), extra.names.end());
  rules.inputs(names);
  rules.require(rules.number("scale") != 0, "scale must not be 0", "0");
  rules.floats({0, 1, 2});
  for (int i = 0; i < 3; ++i) rules.rank(i, 4, 4);
  const TensorType &q = rules[0], &k = rules[1], &v = rules[2];
  rules.shape(2, {k.dim(0), k.dim(1), k.dim(2), v.dim(3)});
  rules.require(k.dim(0) == q.dim(0) && k.dim(3) == q.dim(3),
                "q and k must have the same batch and head size", to_string(q) + " and " + to_string(k));
  // So that pairs can be counted.
  product("flash_attention, queries x keys", {q.dim(1), k.dim(1)});
  rules.require(q.dim(2) % k.dim(2) == 0, "the heads of q must be a multiple of the heads of k and v",
                std::to_string(q.dim(2)) + " and " + std::to_string(k.dim(2)));

  bool window = rules.flag("causal");
  rules.require(!window || rules.flag("query_offset") || k.dim(1) >= q.dim(1),
                "causal attention needs at least as many keys as queries",
                std::to_string(k.dim(1)) + " keys for " + std::to_string(q.dim(1)) + " queries");
  for (const char* side : {"left", "right"}) {
    if (!attrs.has(side)) continue;
    const std::int64_t width = rules.integer(side);
    const bool right = side[0] == 'r';
    rules.require(std::abs(width) < kUnlimited, std::string(side) + " must be below 2^40 to either side",
                  std::to_string(width));
    rules.require(!right || width != 0, "right must not be 0 (causal stands for 0)", "0");
    rules.require(!right || !rules.flag("causal"), "causal and right are one thing said twice",
                  "right = " + std::to_string(width));
    window = true;
  }
  rules.require(window || !rules.flag("prefix"), "prefix needs causal, left or right", "a full mask");
  rules.require(window || rules.flag("slopes") || !rules.flag("query_offset"),
                "query_offset needs causal, left, right or slopes", "none of them");
  if (attrs.has("soft_cap"))
    rules.require(rules.number("soft_cap") > 0, "soft_cap must be positive",
                  std::to_string(rules.number("soft_cap")));

  const Shape rows{q.dim(0)}, heads{q.dim(2)};
  const auto take = [&](DType dtype, const Shape& shape) {
    rules.dtype(next, dtype);
    rules.shape(next++, shape);
  };
  if (rules.flag("segments")) {
    take(DType::i32, {q.dim(0), q.dim(1)});
    take(DType::i32, {k.dim(0), k.dim(1)});
  }
  for (const char* flag : {"prefix", "query_offset"})
    if (rules.flag(flag)) take(DType::i32, rows);
  for (const char* flag : {"sink", "slopes"})
    if (rules.flag(flag)) take(DType::f32, heads);
  rules.require(rules.flag("rng_state") == attrs.has("dropout") && attrs.has("dropout") == attrs.has("key"),
                "rng_state, dropout and key stand together", "one without the others");
  if (rules.flag("rng_state")) check_rng_state(rules, next);
  // Batch rows and heads may share them.
  const auto take_pairs = [&](DType dtype, std::int64_t last) {
    rules.rank(next, 4, 4);
    const TensorType& type = rules[next];
    const auto own = [&](int dim, std::int64_t size) { return type.dim(dim) == 1 ? 1 : size; };
    take(dtype, {own(0, q.dim(0)), own(1, q.dim(2)), q.dim(1), last});
  };
  if (rules.flag("bias")) take_pairs(DType::f32, k.dim(1));
  if (rules.flag("attention_bitmask")) take_pairs(DType::i32, (k.dim(1) + 31) / 32);
}

TensorType o_type(const Rules& rules) {
  return {rules[0].dtype, {rules[0].dim(0), rules[0].dim(1), rules[0].dim(2), rules[2].dim(3)}};
}
TensorType lse_type(const TensorType& q) { return {DType::f32, {q.dim(0), q.dim(2), q.dim(1)}}; }

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("flash_attention", inputs, attrs);
  check_call(rules, {"q", "k", "v"}, attrs);
  return {o_type(rules), lse_type(rules[0])};
}

void check_backward(Rules& rules, const Attrs& attrs) {
  check_call(rules, {"q", "k", "v", "o", "lse", "do"}, attrs);
  rules.floats({0, 3, 5});
  rules.dtype(4, DType::f32);
  for (int i = 3; i < 6; ++i) rules.shape(i, i == 4 ? lse_type(rules[0]).shape : o_type(rules).shape);
}

std::vector<TensorType> infer_grad(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("flash_attention_grad", inputs, attrs);
  check_backward(rules, attrs);
  std::vector<TensorType> outputs{rules[0], rules[1], rules[2]};
  if (rules.flag("sink")) outputs.push_back({DType::f32, {rules[0].dim(2)}});
  return outputs;
}

std::vector<TensorType> infer_bias_grad(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("flash_attention_bias_grad", inputs, attrs);
  check_backward(rules, attrs);
  rules.require(rules.flag("bias"), "bias must be given", "a call without one");
  return {inputs[inputs.size() - (rules.flag("attention_bitmask") ? 2 : 1)]};
}

double work(const CallView& call, double per_feature, double per_value) {
  const AttentionDims d = attention_dims(call);
  return static_cast<double>(d.b) * static_cast<double>(d.h) * static_cast<double>(d.attended_pairs()) *
         (per_feature * static_cast<double>(d.d) + per_value * static_cast<double>(d.dv));
}
double flops(const CallView& call) { return work(call, 2, 2); }
double flops_grad(const CallView& call) { return work(call, 6, 4); }
double flops_bias_grad(const CallView& call) { return work(call, 2, 2); }

// Nothing is read of keys that no window shows, nor of biases and bits of pairs that none does. What prefixes
// and query_offset show is known at run time only: with them, all of it counts.
double bytes(const CallView& call) {
  const AttentionDims d = attention_dims(call);
  double result = bytes_once(call);
  if (d.prefix >= 0 || d.query_offset >= 0) return result;
  const Range shown = d.mask().keys(0, d.s);
  const double keys =
      static_cast<double>(std::max<std::int64_t>(shown.end - shown.begin, 0)) / static_cast<double>(d.t);
  const double pairs =
      static_cast<double>(d.attended_pairs()) / (static_cast<double>(d.s) * static_cast<double>(d.t));
  for (const auto& [index, part] :
       {std::pair{1, keys}, {2, keys}, {d.k_segments, keys}, {d.bias, pairs}, {d.attention_bitmask, pairs}})
    if (index >= 0)
      result -= (1 - part) * static_cast<double>(call.inputs[static_cast<std::size_t>(index)].bytes());
  return result;
}

std::vector<Tensor> gradient(const GradientArgs& args) {
  std::vector<Tensor> result(args.inputs.size());
  if (args.cotangents[1]) throw hal::Error("flash_attention", "has no gradient through lse");
  if (!args.cotangents[0]) return result;
  std::vector<Tensor> inputs{args.inputs[0],  args.inputs[1],  args.inputs[2],
                             args.outputs[0], args.outputs[1], args.cotangents[0]};
  inputs.insert(inputs.end(), args.inputs.begin() + 3, args.inputs.end());
  const std::vector<Tensor> gradients = args.builder.call("flash_attention_grad", inputs, args.call.attrs);
  std::copy_n(gradients.begin(), 3, result.begin());
  const CallTypes types(args.builder.program(), args.call);
  const AttentionDims dims = attention_dims(types.view(args.call));
  if (dims.sink >= 0) result[static_cast<std::size_t>(dims.sink)] = gradients[3];
  // A call of its own: nothing is left of it where nobody learns the bias.
  if (dims.bias >= 0)
    result[static_cast<std::size_t>(dims.bias)] =
        args.builder.call("flash_attention_bias_grad", inputs, args.call.attrs)[0];
  return result;
}

// Queries are independent of each other. Where a sequence attends to itself, S cuts queries and keys alike: sequence.cpp.
enum class Pass { forward, grad, bias_grad };
std::string partition_of(const CallView& call, Pass pass) {
  const bool grad = pass != Pass::forward;
  const AttentionDims d = attention_dims(call);
  // What is dropped depends on the place in the whole call.
  const bool drawn = d.rng_state >= 0;
  // The distance from a key that is far from a shard's own is not known.
  const bool self = d.s == d.t && d.slopes < 0;
  const std::string s = drawn                                  ? "."
                        : self                                 ? "S"
                        : d.mask().windowed() || d.slopes >= 0 ? "."
                                                               : "s",
                    t = s == "S" ? s : ".", b = drawn ? "." : "b", h = drawn ? "." : "h";
  const std::string q = b + s + h + ".", k = b + t + h + ".", lse = b + h + s;
  const std::string equal_parts = s == "S" ? "1" : "";  // which sequence.cpp counts on
  std::string text = b + s + equal_parts + h + ".," + k + "," + k;
  if (grad) text += "," + q + "," + lse + "," + q;
  if (d.q_segments >= 0) text += "," + b + s + "," + b + t;
  for (const int rows : {d.prefix, d.query_offset})
    if (rows >= 0) text += "," + b;
  for (const int heads : {d.sink, d.slopes})
    if (heads >= 0) text += "," + h;
  if (drawn) text += ",.";
  const auto pairs = [&](bool rows, bool heads) { return (rows ? b : ".") + (heads ? h : ".") + s + "."; };
  if (d.bias >= 0) text += "," + pairs(d.bias_rows, d.bias_heads);
  if (d.attention_bitmask >= 0) text += "," + pairs(d.bitmask_rows, d.bitmask_heads);
  if (pass == Pass::bias_grad) return text + "->" + pairs(d.bias_rows, d.bias_heads);
  text += "->" + q + "," + (grad ? k + "," + k : lse);
  return grad && d.sink >= 0 ? text + "," + h : text;
}
std::string partition(const CallView& call) { return partition_of(call, Pass::forward); }
std::string partition_grad(const CallView& call) { return partition_of(call, Pass::grad); }

std::string partition_bias_grad(const CallView& call) { return partition_of(call, Pass::bias_grad); }

LowPrecision low_precision(const CallView&) { return {.same = {0, 1, 2}}; }
LowPrecision low_precision_grad(const CallView&) { return {.same = {0, 1, 2, 3, 5}}; }

// Where the near keys of a row may be hidden, slopes, which are at most 1/2, make all its logits as large as T / 2: half an ulp each of
// the logit and of lse, and of either in units of log2, is a relative error of its probabilities of up to T / 4 ulps forward and T / 2 back.
double score_ulps(const AttentionDims& d) {
  const bool hides_near_keys = d.q_segments >= 0 || d.query_offset >= 0 || d.attention_bitmask >= 0;
  return logit_ulps(d.scale, d.d) + (d.slopes >= 0 && hides_near_keys ? static_cast<double>(d.t) / 4 : 0);
}

// How many keys a row's sums may come down to, where q and k are of the size of 1 and a bias of 2.
double min_keys(const AttentionDims& d) {
  if (d.q_segments >= 0 || d.query_offset >= 0 || d.attention_bitmask >= 0 || d.slopes >= 0) return 1;
  const auto seen = [&](std::int64_t position) {
    return std::min(d.t - 1, position + d.right) - std::max<std::int64_t>(0, position - d.left) + 1;
  };
  // The row that sees fewest is the first or the last. Of normal scores few keys have the weight.
  const auto seen_least = static_cast<double>(std::min(seen(d.t - d.s), seen(d.t - 1)));
  double scores = d.scale * d.scale * static_cast<double>(d.d) / 9;
  if (d.soft_cap > 0) scores = std::min(scores, d.soft_cap * d.soft_cap);
  return std::max(1.0, seen_least * std::exp(-scores - (d.bias >= 0 ? 4.0 / 3 : 0)));
}
// Matrix units take a weight as the sum of two 16-bit numbers. Two of bf16, each rounded to nearest, leave out at most 2^-18 of
// a weight between 1/2 and 1, which is 32 ulps, of either sign (f16: less than one). The largest weight is 1, without error, so that
// a row of n keys is off by at most 64 (n - 1) / (n + 1) ulps: 21 of two keys, 32 of three. The errors of more keys add up at
// random, 11 sqrt(n - 1) ulps over a sum of weights of at least (n + 1) / 2, to less than 32 at four times that. These 24 hold it
// together with the ulps of scores, 11 or more of eight features, and of the sum.
double weight_ulps(const CallView& call) { return call.inputs[0].dtype == DType::bf16 ? 24 : 16; }
// The softmax's sums run over T, those of dk and dv over S too.
Tolerance tolerance(const CallView& call) {
  const AttentionDims d = attention_dims(call);
  Tolerance result = sum_tolerance(static_cast<double>(d.t), weight_ulps(call) + score_ulps(d));
  result.scale = d.kept() / std::sqrt(min_keys(d));
  return result;
}
Tolerance tolerance_grad(const CallView& call) {
  const AttentionDims d = attention_dims(call);
  Tolerance result = sum_tolerance(static_cast<double>(d.t + d.s * (d.h / d.kv)), 32 + 2 * score_ulps(d));
  // With a single visible key dq and dk are 0 but for rounding.
  result.scale = d.kept() / min_keys(d);
  return result;
}
// Sums over the rows and heads that share a bias.
Tolerance tolerance_bias_grad(const CallView& call) {
  const AttentionDims d = attention_dims(call);
  const std::int64_t shared = (d.bias_rows ? 1 : d.b) * (d.bias_heads ? 1 : d.h);
  Tolerance result = sum_tolerance(static_cast<double>(d.t + shared), 32 + 2 * score_ulps(d));
  result.scale = d.kept() / min_keys(d);
  return result;
}

}  // namespace

std::string AttentionDims::extras() const {
  std::vector<std::string> found;
  if (left < kUnlimited) found.push_back("a left window");
  if (!causal && right < kUnlimited) found.push_back("a right window");
  if (soft_cap > 0) found.push_back("a soft cap");
  if (q_segments >= 0) found.push_back("segments");
  if (prefix >= 0) found.push_back("a prefix");
  if (query_offset >= 0) found.push_back("query_offset");
  if (sink >= 0) found.push_back("a sink");
  if (slopes >= 0) found.push_back("slopes");
  if (rng_state >= 0) found.push_back("dropout");
  if (bias >= 0) found.push_back("a bias");
  if (attention_bitmask >= 0) found.push_back("a mask of bits");
  if (dv != d) found.push_back("values of " + std::to_string(dv) + " features");
  std::string text;
  for (const std::string& extra : found) text += (text.empty() ? "" : ", ") + extra;
  return text;
}

bool AttentionDims::plain() const { return extras().empty(); }

AttentionDims attention_dims(const CallView& call) {
  const TensorType &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  const Attrs& attrs = call.attrs;
  AttentionDims d{.b = q.dim(0),
                  .s = q.dim(1),
                  .t = k.dim(1),
                  .h = q.dim(2),
                  .kv = k.dim(2),
                  .d = q.dim(3),
                  .dv = v.dim(3),
                  .causal = attrs.flag("causal"),
                  .scale = attrs.number("scale")};
  if (attrs.has("left")) d.left = attrs.integer("left");
  if (attrs.has("right")) d.right = attrs.integer("right");
  if (d.causal) d.right = 0;
  if (attrs.has("soft_cap")) d.soft_cap = attrs.number("soft_cap");
  int next = call.op == "flash_attention" ? 3 : 6;
  if (attrs.flag("segments")) d.q_segments = next++, d.k_segments = next++;
  if (attrs.flag("prefix")) d.prefix = next++;
  if (attrs.flag("query_offset")) d.query_offset = next++;
  if (attrs.flag("sink")) d.sink = next++;
  if (attrs.flag("slopes")) d.slopes = next++;
  if (attrs.flag("rng_state")) {
    d.rng_state = next++;
    d.dropout = attrs.number("dropout");
    const auto key = static_cast<std::uint64_t>(attrs.integer("key"));
    d.k0 = static_cast<std::uint32_t>(key);
    d.k1 = static_cast<std::uint32_t>(key >> 32);
  }
  const auto shares = [&](const char* flag, int& input, bool& rows, bool& heads) {
    if (!attrs.flag(flag)) return;
    const TensorType& type = call.inputs[static_cast<std::size_t>(input = next++)];
    rows = type.dim(0) > 1, heads = type.dim(1) > 1;
  };
  shares("bias", d.bias, d.bias_rows, d.bias_heads);
  shares("attention_bitmask", d.attention_bitmask, d.bitmask_rows, d.bitmask_heads);
  return d;
}

AttentionOutputs flash_attention_with_lse(Tensor q, Tensor k, Tensor v,
                                          const FlashAttentionOptions& options) {
  Attrs attrs{{"scale", options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.dim(-1)))}};
  if (options.causal) attrs.set("causal", true);
  if (options.left) attrs.set("left", *options.left);
  if (options.right) attrs.set("right", *options.right);
  if (options.soft_cap != 0) attrs.set("soft_cap", options.soft_cap);
  std::vector<Tensor> inputs{q, k, v};
  const auto take = [&](const char* flag, std::initializer_list<Tensor> tensors) {
    for (const Tensor& tensor : tensors) {
      if (!tensor) continue;
      attrs.set(flag, true);
      inputs.push_back(tensor);
    }
  };
  take("segments", {options.q_segments, options.k_segments});
  take("prefix", {options.prefix});
  take("query_offset", {options.query_offset});
  take("sink", {options.sink});
  take("slopes", {options.slopes});
  if (options.dropout > 0) {
    take("rng_state", {options.rng_state});
    attrs.set("dropout", options.dropout);
    attrs.set("key", static_cast<std::int64_t>(options.key & ~(std::uint64_t{1} << 63)));
  }
  take("bias", {options.bias});
  take("attention_bitmask", {options.attention_bitmask});
  const std::vector<Tensor> outputs = q.builder->call("flash_attention", inputs, std::move(attrs));
  return {outputs[0], outputs[1]};
}

Tensor flash_attention(Tensor q, Tensor k, Tensor v, const FlashAttentionOptions& options) {
  return flash_attention_with_lse(q, k, v, options).o;
}

void add_flash_attention(Catalog& catalog) {
  catalog.add(Contract{.name = "flash_attention",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes,
                       .reference = flash_attention_parts::reference,
                       .low_precision = low_precision,
                       .gradient = gradient,
                       .partition = partition,
                       .local = flash_attention_parts::local,
                       .takes_two_runs = true,
                       .tolerance = tolerance,
                       .cases = flash_attention_parts::cases,
                       .in_place = never_in_place,
                       .make_input = flash_attention_parts::make_input,
                       .random_case = flash_attention_parts::random_case});
  catalog.add(Contract{.name = "flash_attention_grad",
                       .infer = infer_grad,
                       .flops = flops_grad,
                       .bytes = bytes,
                       .reference = flash_attention_parts::reference_grad,
                       .low_precision = low_precision_grad,
                       .partition = partition_grad,
                       .local = flash_attention_parts::local,
                       .takes_two_runs = true,
                       .tolerance = tolerance_grad,
                       .cases = flash_attention_parts::cases_grad,
                       .in_place = never_in_place,
                       .make_input = flash_attention_parts::make_input_grad,
                       .random_case = flash_attention_parts::random_grad});
  catalog.add(Contract{.name = "flash_attention_bias_grad",
                       .infer = infer_bias_grad,
                       .flops = flops_bias_grad,
                       .bytes = bytes,
                       .reference = flash_attention_parts::reference_bias_grad,
                       .low_precision = low_precision_grad,
                       .partition = partition_bias_grad,
                       .local = flash_attention_parts::local,
                       .takes_two_runs = true,
                       .tolerance = tolerance_bias_grad,
                       .cases = flash_attention_parts::cases_bias_grad,
                       .in_place = never_in_place,
                       .make_input = flash_attention_parts::make_input_grad,
                       .random_case = flash_attention_parts::random_bias_grad});
}

}  // namespace meshloom::kernels
