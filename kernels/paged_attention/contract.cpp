#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
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
  rules.attributes({"scale"}, {"left", "soft_cap", "scaled", "block", "value_dim", "values_in_keys", "ring",
                               "sink", "slopes"});
  const bool scaled = rules.flag("scaled"), in_keys = rules.flag("values_in_keys");
  std::vector<std::string> names;
  const auto next = [&](const char* name) {
    names.push_back(name);
    return static_cast<int>(names.size()) - 1;
  };
  next("q"), next("k_pool");
  const int v_pool = in_keys ? -1 : next("v_pool");
  const int page_table = next("page_table"), query_starts = next("query_starts"), lengths = next("lengths");
  const int k_scales = scaled ? next("k_scales") : -1, v_scales = scaled && !in_keys ? next("v_scales") : -1;
  const int heads = static_cast<int>(names.size());  // the first input of one number for each head
  for (const char* flag : {"sink", "slopes"})
    if (rules.flag(flag)) next(flag);
  rules.inputs(names);
  rules.require(rules.number("scale") != 0, "scale must not be 0", "0");
  if (attrs.has("soft_cap"))
    rules.require(rules.number("soft_cap") > 0, "soft_cap must be positive",
                  std::to_string(rules.number("soft_cap")));
  if (attrs.has("left"))
    rules.require(rules.integer("left") >= 0 && rules.integer("left") < kUnlimited,
                  "left must not be negative, and below 2^40", std::to_string(rules.integer("left")));
  rules.floating(kQ);
  const bool four_bits = scaled && inputs[kKPool].dtype == DType::u8;
  if (scaled) {
    rules.require(four_bits || inputs[kKPool].dtype == DType::i8, "pools with scales must be i8 or u8",
                  to_string(inputs[kKPool]));
    if (!in_keys) rules.dtype(v_pool, inputs[kKPool].dtype);
  } else if (in_keys) {
    rules.floating(kKPool);
  } else {
    rules.floats({kKPool, v_pool});
  }
  rules.require(four_bits == attrs.has("block"), "block must be given for pools of u8, and for no others",
                to_string(inputs[kKPool]));
  rules.require((four_bits || in_keys) == attrs.has("value_dim"),
                "value_dim must be given for pools of u8 and with values_in_keys, and for no others",
                to_string(inputs[kKPool]));
  rules.rank(kQ, 3, 3);
  rules.rank(kKPool, 4, 4);
  if (!in_keys) rules.rank(v_pool, 4, 4);
  const TensorType &q = rules[kQ], &k = rules[kKPool];
  std::int64_t value_dim = in_keys ? 0 : rules[v_pool].dim(3);
  if (attrs.has("value_dim")) {
    value_dim = rules.integer("value_dim");
    rules.require(value_dim >= 1, "value_dim must be at least 1", std::to_string(value_dim));
    rules.require(!in_keys || value_dim <= q.dim(2),
                  "values in keys must have at most the features of keys, " + std::to_string(q.dim(2)),
                  std::to_string(value_dim));
  }
  std::int64_t key_row = q.dim(2), value_row = value_dim, key_scales = 1, value_scales = 1;
  if (four_bits) {
    const std::int64_t block = rules.integer("block");
    rules.require(block >= 8 && block % 8 == 0, "block must be a multiple of 8", std::to_string(block));
    key_row = nf4::row_bytes(q.dim(2)), value_row = nf4::row_bytes(value_dim);
    key_scales = nf4::blocks(q.dim(2), block), value_scales = nf4::blocks(value_dim, block);
  }
  if (!in_keys) rules.shape(v_pool, {k.dim(0), k.dim(1), k.dim(2), value_row});
  rules.require(k.dim(3) == key_row, "q and k_pool must have the same head size",
                to_string(q) + " and " + to_string(k));
  rules.require(q.dim(1) % k.dim(2) == 0, "the heads of q must be a multiple of the heads of the pools",
                std::to_string(q.dim(1)) + " and " + std::to_string(k.dim(2)));
  rules.dtype(page_table, DType::i32);
  rules.rank(page_table, 2, 2);
  const std::int64_t rows = rules[page_table].dim(0);
  const std::int64_t keys =
      product("paged_attention, keys of a sequence", {rules[page_table].dim(1), k.dim(1)});
  rules.require(keys < std::int64_t{1} << 31, "the keys of a sequence must be numbered in i32",
                std::to_string(keys));
  rules.dtype(query_starts, DType::i32);
  rules.shape(query_starts, {rows + 1});
  rules.dtype(lengths, DType::i32);
  rules.shape(lengths, {rows});
  if (rules.flag("ring"))
    rules.require(attrs.has("left") && rules.integer("left") < keys,
                  "a ring must have a left of less than its keys",
                  (attrs.has("left") ? std::to_string(rules.integer("left")) : "none") + " and " +
                      std::to_string(keys));
  for (const auto& [input, scales] : {std::pair{k_scales, key_scales}, {v_scales, value_scales}}) {
    if (input < 0) continue;
    rules.dtype(input, DType::f32);
    rules.shape(input, {k.dim(0), k.dim(1), k.dim(2), scales});
  }
  for (int input = heads; input < static_cast<int>(inputs.size()); ++input) {
    rules.dtype(input, DType::f32);
    rules.shape(input, {q.dim(1)});
  }
  return {{q.dtype, {q.dim(0), q.dim(1), value_dim}}};
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
  double pools = 0;
  for (const int input : std::set{int{kKPool}, d.v_pool, d.k_scales, d.v_scales})
    if (input >= 0) pools += static_cast<double>(call.inputs[static_cast<std::size_t>(input)].bytes());
  return bytes_once(call) - (1 - part) * pools;
}

// A row of a pool, of the numbers that it stands for; `scratch` has room for them.
const float* row_at(const PagedAttentionDims& d, const ConstTensorView& pool, const float* scales,
                    std::int64_t at, std::int64_t features, std::vector<float>& scratch) {
  if (d.pool == DType::u8) {
    nf4::unpack(pool.as<std::uint8_t>() + at * d.stored(features), scales + at * d.scales(features), 1,
                features, d.block, scratch.data());
  } else if (d.pool == DType::i8) {
    const auto* codes = pool.as<std::int8_t>() + at * features;
    std::transform(codes, codes + features, scratch.begin(),
                   [scale = scales[at]](std::int8_t code) { return code * scale; });
  } else {
    return pool.as<float>() + at * features;
  }
  return scratch.data();
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
  std::vector<float> scratch(static_cast<std::size_t>(std::max(d.d, d.dv)));
  for (std::int64_t r = 0; r < d.r; ++r) {
    const Range queries = queries_of(d, integers(d.query_starts), r);
    const AttentionMask mask = d.mask(queries.end - queries.begin, integers(d.lengths)[r]);
    const auto row_of = [&](std::int64_t j, std::int64_t kv) {
      return d.row_of(integers(d.page_table), r, j, kv);
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
          const float* k = row_at(d, inputs[kKPool], optional(d.k_scales), row_of(j, kv), d.d, scratch);
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
          const float* v = row_at(d, inputs[static_cast<std::size_t>(d.v_pool)], optional(d.v_scales),
                                  row_of(j, kv), d.value_row(), scratch);
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
  const bool in_keys = call.attrs.flag("values_in_keys");
  std::string text = in_keys ? ".h.,..h.,..,.,." : ".h.,..h.,..h.,..,.,.";
  if (call.attrs.flag("scaled")) text += in_keys ? ",..h." : ",..h.,..h.";
  for (const char* flag : {"sink", "slopes"})
    if (call.attrs.flag(flag)) text += ",h";
  return text + "->.h.";
}

LowPrecision low_precision(const CallView& call) {
  const int v_pool = paged_attention_dims(call).v_pool;
  return v_pool == kKPool ? LowPrecision{.same = {kQ}, .any = {kKPool}}
                          : LowPrecision{.same = {kQ}, .any = {kKPool, v_pool}};
}

// The first tokens of a sequence see few keys.
Tolerance tolerance(const CallView& call) {
  const PagedAttentionDims d = paged_attention_dims(call);
  Tolerance result = sum_tolerance(static_cast<double>(d.capacity()), 16 + logit_ulps(d.scale, d.d));
  result.scale = 1;
  return result;
}

}  // namespace

PagedAttentionDims paged_attention_dims(const CallView& call) {
  const bool scaled = call.attrs.flag("scaled"), in_keys = call.attrs.flag("values_in_keys");
  int next = kKPool + 1;
  const int v_pool = in_keys ? int{kKPool} : next++, page_table = next++, query_starts = next++,
            lengths = next++;
  const TensorType &q = call.inputs[kQ], &k = call.inputs[kKPool],
                   &table = call.inputs[static_cast<std::size_t>(page_table)];
  PagedAttentionDims d{.n = q.dim(0),
                       .h = q.dim(1),
                       .d = q.dim(2),
                       .p = k.dim(0),
                       .page = k.dim(1),
                       .kv = k.dim(2),
                       .dv = call.outputs[0].dim(2),
                       .r = table.dim(0),
                       .m = table.dim(1),
                       .scale = call.attrs.number("scale"),
                       .v_pool = v_pool,
                       .page_table = page_table,
                       .query_starts = query_starts,
                       .lengths = lengths};
  if (call.attrs.has("left")) d.left = call.attrs.integer("left");
  if (call.attrs.has("soft_cap")) d.soft_cap = call.attrs.number("soft_cap");
  d.ring = call.attrs.flag("ring");
  d.pool = k.dtype;
  if (call.attrs.has("block")) d.block = call.attrs.integer("block");
  if (scaled) d.k_scales = next++, d.v_scales = in_keys ? d.k_scales : next++;
  if (call.attrs.flag("sink")) d.sink = next++;
  if (call.attrs.flag("slopes")) d.slopes = next++;
  return d;
}

Range queries_of(const PagedAttentionDims& dims, const std::int32_t* query_starts, std::int64_t r) {
  const auto within = [&](std::int32_t start) { return std::clamp<std::int64_t>(start, 0, dims.n); };
  return {within(query_starts[r]), within(query_starts[r + 1])};
}

Tensor paged_attention(Tensor q, const PagedRows& keys, const PagedRows& values, std::int64_t value_dim,
                       Tensor page_table, Tensor query_starts, Tensor lengths,
                       const PagedAttentionOptions& options) {
  Attrs attrs{{"scale", options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.dim(-1)))}};
  if (options.left) attrs.set("left", *options.left);
  if (options.soft_cap != 0) attrs.set("soft_cap", options.soft_cap);
  if (options.ring) attrs.set("ring", true);
  const bool in_keys = !values.rows;
  std::vector<Tensor> inputs{q, keys.rows};
  if (!in_keys) inputs.push_back(values.rows);
  inputs.insert(inputs.end(), {page_table, query_starts, lengths});
  if (keys.scales) {
    attrs.set("scaled", true);
    inputs.push_back(keys.scales);
    if (!in_keys) inputs.push_back(values.scales);
  }
  if (in_keys) attrs.set("values_in_keys", true);
  if (keys.block > 0) attrs.set("block", keys.block);
  if (in_keys || keys.block > 0) attrs.set("value_dim", value_dim);
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
