#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "hal/math.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rules.h"
#include "kernels/paged_attention/parts.h"
#include "kernels/program/sizes.h"

namespace meshloom::kernels {
namespace {

using enum PagedAttentionDims::Input;

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("paged_attention", inputs, attrs);
  rules.attributes({"scale"}, {"left", "soft_cap", "sink", "slopes"});
  std::vector<std::string> names{"q", "k_pool", "v_pool", "page_table", "query_starts", "lengths"};
  for (const char* flag : {"sink", "slopes"})
    if (rules.flag(flag)) names.push_back(flag);
  rules.inputs(names);
  rules.require(rules.number("scale") != 0, "scale must not be 0", "0");
  if (attrs.has("soft_cap"))
    rules.require(rules.number("soft_cap") > 0, "soft_cap must be positive",
                  std::to_string(rules.number("soft_cap")));
  if (attrs.has("left"))
    rules.require(rules.integer("left") >= 0 && rules.integer("left") < kUnlimited,
                  "left must not be negative, and below 2^40", std::to_string(rules.integer("left")));
  rules.floating(kQ);
  rules.floats({kKPool, kVPool});
  rules.rank(kQ, 3, 3);
  for (const int pool : {kKPool, kVPool}) rules.rank(pool, 4, 4);
  const TensorType &q = rules[kQ], &k = rules[kKPool], &v = rules[kVPool];
  rules.shape(kVPool, {k.dim(0), k.dim(1), k.dim(2), v.dim(3)});
  rules.require(k.dim(3) == q.dim(2), "q and k_pool must have the same head size",
                to_string(q) + " and " + to_string(k));
  rules.require(q.dim(1) % k.dim(2) == 0, "the heads of q must be a multiple of the heads of the pools",
                std::to_string(q.dim(1)) + " and " + std::to_string(k.dim(2)));
  rules.dtype(kPageTable, DType::i32);
  rules.rank(kPageTable, 2, 2);
  const std::int64_t rows = rules[kPageTable].dim(0);
  const std::int64_t keys =
      product("paged_attention, keys of a sequence", {rules[kPageTable].dim(1), k.dim(1)});
  rules.require(keys < std::int64_t{1} << 31, "the keys of a sequence must be numbered in i32",
                std::to_string(keys));
  rules.dtype(kQueryStarts, DType::i32);
  rules.shape(kQueryStarts, {rows + 1});
  rules.dtype(kLengths, DType::i32);
  rules.shape(kLengths, {rows});
  for (int next = kLengths + 1; next < static_cast<int>(inputs.size()); ++next) {
    rules.dtype(next, DType::f32);
    rules.shape(next, {q.dim(1)});
  }
  return {{q.dtype, {q.dim(0), q.dim(1), v.dim(3)}}};
}

double flops(const CallView& call) {
  const PagedAttentionDims d = paged_attention_dims(call);
  return 2.0 * static_cast<double>(d.n) * static_cast<double>(d.h) * static_cast<double>(d.d + d.dv) *
         static_cast<double>(d.attended_keys());
}

// A sequence's keys are read once, however many queries it has; those of no sequence, and what stands before all windows, never.
double bytes(const CallView& call) {
  const PagedAttentionDims d = paged_attention_dims(call);
  const std::int64_t keys = std::min(d.capacity(), d.attended_keys() + hal::ceil_div(d.n, d.r) - 1);
  const double part = std::min(1.0, static_cast<double>(d.r) * static_cast<double>(keys) /
                                        (static_cast<double>(d.p) * static_cast<double>(d.page)));
  return bytes_once(call) -
         (1 - part) * static_cast<double>(call.inputs[kKPool].bytes() + call.inputs[kVPool].bytes());
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const PagedAttentionDims d = paged_attention_dims(call);
  const auto integers = [&](int input) { return inputs[static_cast<std::size_t>(input)].as<std::int32_t>(); };
  const auto optional = [&](int input) {
    return input < 0 ? nullptr : inputs[static_cast<std::size_t>(input)].as<float>();
  };
  const float* sink = optional(d.sink);
  const AttentionLogit logit{d.soft_cap, optional(d.slopes)};
  float* o = outputs[0].as<float>();
  std::fill_n(o, call.outputs[0].elements(), 0.0f);
  std::vector<double> p, sums(static_cast<std::size_t>(d.dv));
  for (std::int64_t r = 0; r < d.r; ++r) {
    const Range queries = queries_of(d, integers(kQueryStarts), r);
    const AttentionMask mask = d.mask(queries.end - queries.begin, integers(kLengths)[r]);
    const auto row_of = [&](std::int64_t j, std::int64_t kv) {
      const std::int64_t page = d.page_of(integers(kPageTable)[r * d.m + j / d.page]);
      return (page * d.page + j % d.page) * d.kv + kv;
    };
    for (std::int64_t i = queries.begin; i < queries.end; ++i)
      for (std::int64_t h = 0; h < d.h; ++h) {
        const std::int64_t kv = h / d.group(), position = i - queries.begin + mask.offset;
        const Range keys = mask.window(i - queries.begin);
        const float* q = inputs[kQ].as<float>() + (i * d.h + h) * d.d;
        const double least = sink ? sink[h] : -std::numeric_limits<double>::infinity();
        double largest = least;
        p.clear();
        for (std::int64_t j = keys.begin; j < keys.end; ++j) {
          const float* k = inputs[kKPool].as<float>() + row_of(j, kv) * d.d;
          double x = 0;
          for (std::int64_t c = 0; c < d.d; ++c) x += static_cast<double>(q[c]) * k[c];
          p.push_back(logit(h, position - j, d.scale * x));
          largest = std::max(largest, p.back());
        }
        if (p.empty()) continue;
        double sum = std::exp(least - largest);
        for (double& x : p) sum += x = std::exp(x - largest);
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::int64_t j = keys.begin; j < keys.end; ++j) {
          const float* v = inputs[kVPool].as<float>() + row_of(j, kv) * d.dv;
          for (std::int64_t c = 0; c < d.dv; ++c)
            sums[static_cast<std::size_t>(c)] += p[static_cast<std::size_t>(j - keys.begin)] * v[c];
        }
        for (std::int64_t c = 0; c < d.dv; ++c)
          o[(i * d.h + h) * d.dv + c] = static_cast<float>(sums[static_cast<std::size_t>(c)] / sum);
      }
  }
}

// Every shard has all pages, of its own heads.
std::string partition(const CallView& call) {
  std::string text = ".h.,..h.,..h.,..,.,.";
  for (std::size_t i = kLengths + 1; i < call.inputs.size(); ++i) text += ",h";
  return text + "->.h.";
}

LowPrecision low_precision(const CallView&) { return {.same = {kQ}, .any = {kKPool, kVPool}}; }

// The first tokens of a sequence see few keys.
Tolerance tolerance(const CallView& call) {
  const PagedAttentionDims d = paged_attention_dims(call);
  Tolerance result = sum_tolerance(static_cast<double>(d.capacity()), 16 + logit_ulps(d.scale, d.d));
  result.scale = 1;
  return result;
}

}  // namespace

PagedAttentionDims paged_attention_dims(const CallView& call) {
  const TensorType &q = call.inputs[kQ], &k = call.inputs[kKPool], &table = call.inputs[kPageTable];
  PagedAttentionDims d{.n = q.dim(0),
                       .h = q.dim(1),
                       .d = q.dim(2),
                       .p = k.dim(0),
                       .page = k.dim(1),
                       .kv = k.dim(2),
                       .dv = call.inputs[kVPool].dim(3),
                       .r = table.dim(0),
                       .m = table.dim(1),
                       .scale = call.attrs.number("scale")};
  if (call.attrs.has("left")) d.left = call.attrs.integer("left");
  if (call.attrs.has("soft_cap")) d.soft_cap = call.attrs.number("soft_cap");
  int next = kLengths + 1;
  if (call.attrs.flag("sink")) d.sink = next++;
  if (call.attrs.flag("slopes")) d.slopes = next++;
  return d;
}

Range queries_of(const PagedAttentionDims& dims, const std::int32_t* query_starts, std::int64_t r) {
  const auto within = [&](std::int32_t start) { return std::clamp<std::int64_t>(start, 0, dims.n); };
  return {within(query_starts[r]), within(query_starts[r + 1])};
}

Tensor paged_attention(Tensor q, Tensor k_pool, Tensor v_pool, Tensor page_table, Tensor query_starts,
                       Tensor lengths, const PagedAttentionOptions& options) {
  Attrs attrs{{"scale", options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.dim(-1)))}};
  if (options.left) attrs.set("left", *options.left);
  if (options.soft_cap != 0) attrs.set("soft_cap", options.soft_cap);
  std::vector<Tensor> inputs{q, k_pool, v_pool, page_table, query_starts, lengths};
  const auto take = [&](const char* flag, const Tensor& tensor) {
    if (!tensor) return;
    attrs.set(flag, true);
    inputs.push_back(tensor);
  };
  take("sink", options.sink);
  take("slopes", options.slopes);
  return q.builder->call1("paged_attention", inputs, std::move(attrs));
}

void add_paged_attention(Catalog& catalog) {
  catalog.add(Contract{.name = "paged_attention",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes,
                       .reference = reference,
                       .low_precision = low_precision,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = paged_attention_parts::cases,
                       .in_place = never_in_place,
                       .make_input = paged_attention_parts::make_input,
                       .random_case = paged_attention_parts::random_case});
}

}  // namespace meshloom::kernels
