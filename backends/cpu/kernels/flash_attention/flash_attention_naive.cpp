// One query per work item forward and for dq, one key per work item for dk and dv; plain loops.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/kernels/flash_attention/flash_attention_mask.h"

namespace meshloom::backends::cpu {
namespace {

constexpr int kMaxDim = 256;

float dot(const float* a, const float* b, std::int64_t n) {
  float parts[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int p = 0; p < 8; ++p) parts[p] += a[i + p] * b[i + p];
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const float part : parts) sum += part;
  return sum;
}

void add_scaled(float* to, float factor, const float* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// The logit of a pair and, for the backward pass, how steeply it follows scale q.k.
class Logits {
 public:
  Logits(const FlashWork& work, const KernelArgs& args)
      : work_(work),
        args_(args),
        slopes_(work.slopes == 0 ? nullptr : args.at(static_cast<std::size_t>(work.slopes))) {}

  float operator()(const kernels::AttentionMask& mask, std::int64_t b, std::int64_t h, std::int64_t i,
                   std::int64_t j, float x) const {
    if (work_.soft_cap > 0) x = work_.soft_cap * std::tanh(x / work_.soft_cap);
    if (slopes_) x -= slopes_[h] * static_cast<float>(std::abs(i + mask.offset - j));
    if (const float* bias = flash_bias(work_, args_, b, h)) x += bias[i * work_.t + j];
    return x;
  }
  float steepness(float x) const {
    if (work_.soft_cap <= 0) return 1;
    const float y = std::tanh(x / work_.soft_cap);
    return 1 - y * y;
  }

 private:
  const FlashWork& work_;
  const KernelArgs& args_;
  const float* slopes_;
};

// What dropout multiplies the probability of a pair by.
class Kept {
 public:
  Kept(const FlashWork& work, const KernelArgs& args) : drops_(work.rng_state != 0) {
    if (drops_) dropout_ = flash_dropout(work, args);
  }
  float operator()(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return drops_ ? dropout_.factor(b, h, i, j) : 1.0f;
  }

 private:
  bool drops_;
  kernels::AttentionDropout dropout_{};
};

}  // namespace

void run_flash_naive(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const FlashLayout at(work);
  const Logits logit(work, args);
  const Kept kept(work, args);
  FlashMasks masks(work, args);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t i = item % work.s, h = item / work.s % work.h, b = item / work.s / work.h;
    const std::int64_t kv = h / work.group();
    const float* q = args.at(flash::q) + at.query(b, i, h);
    float sums[kMaxDim] = {}, largest = -std::numeric_limits<float>::infinity(), total = 0;
    if (work.sink != 0) {
      largest = args.at(static_cast<std::size_t>(work.sink))[h];
      total = 1;
    }
    masks.head(b, h);
    const kernels::AttentionMask& mask = masks.mask();
    const kernels::Range keys = mask.keys(i, i + 1);
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      if (!mask.visible(i, j)) continue;
      const float score =
          logit(mask, b, h, i, j, work.scale * dot(q, args.at(flash::k) + at.key(b, j, kv), work.d));
      if (score > largest) {
        const float shrink = std::exp(largest - score);
        total *= shrink;
        for (int e = 0; e < work.dv; ++e) sums[e] *= shrink;
        largest = score;
      }
      const float p = std::exp(score - largest);
      total += p;
      add_scaled(sums, p * kept(b, h, i, j), args.at(flash::v) + at.value(b, j, kv), work.dv);
    }
    float* o = args.at(flash::o) + at.output(b, i, h);
    for (int e = 0; e < work.dv; ++e) o[e] = total > 0 ? sums[e] / total : 0;
    args.at(flash::lse)[at.stat(b, i, h)] = largest + std::log(total);
  }
}

void run_flash_naive_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const FlashLayout at(work);
  const Logits logit(work, args);
  const Kept kept(work, args);
  FlashMasks masks(work, args);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t i = item % work.s, h = item / work.s % work.h, b = item / work.s / work.h;
    const std::int64_t kv = h / work.group(), row = at.query(b, i, h), out = at.output(b, i, h);
    const float *q = args.at(flash::q) + row, *d_o = args.at(flash::d_o) + out;
    const float lse = args.at(flash::lse)[at.stat(b, i, h)];
    const float delta = dot(args.at(flash::o) + out, d_o, work.dv);
    float sums[kMaxDim] = {};
    masks.head(b, h);
    const kernels::AttentionMask& mask = masks.mask();
    const kernels::Range keys = mask.keys(i, i + 1);
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      if (!mask.visible(i, j)) continue;
      const float *k = args.at(flash::k) + at.key(b, j, kv), *v = args.at(flash::v) + at.value(b, j, kv);
      const float x = work.scale * dot(q, k, work.d), p = std::exp(logit(mask, b, h, i, j, x) - lse);
      const float product = kept(b, h, i, j) * dot(d_o, v, work.dv);
      add_scaled(sums, p * (product - delta) * logit.steepness(x), k, work.d);
    }
    for (int e = 0; e < work.d; ++e) args.at(flash::dq)[row + e] = work.scale * sums[e];
  }
}

void run_flash_naive_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const FlashLayout at(work);
  const Logits logit(work, args);
  const Kept kept(work, args);
  FlashMasks masks(work, args);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t j = item % work.t, kv = item / work.t % work.kv, b = item / work.t / work.kv;
    const std::int64_t own_k = at.key(b, j, kv), own_v = at.value(b, j, kv);
    const float *k = args.at(flash::k) + own_k, *v = args.at(flash::v) + own_v;
    float dk[kMaxDim] = {}, dv[kMaxDim] = {};
    for (std::int64_t h = kv * work.group(); h < (kv + 1) * work.group(); ++h) {
      masks.head(b, h);
      const kernels::AttentionMask& mask = masks.mask();
      const kernels::Range queries = mask.queries(j);
      for (std::int64_t i = queries.begin; i < queries.end; ++i) {
        if (!mask.visible(i, j)) continue;
        const std::int64_t out = at.output(b, i, h);
        const float *q = args.at(flash::q) + at.query(b, i, h), *d_o = args.at(flash::d_o) + out;
        const float delta = dot(args.at(flash::o) + out, d_o, work.dv);
        const float x = work.scale * dot(q, k, work.d);
        const float p = std::exp(logit(mask, b, h, i, j, x) - args.at(flash::lse)[at.stat(b, i, h)]);
        const float stays = kept(b, h, i, j);
        add_scaled(dv, p * stays, d_o, work.dv);
        add_scaled(dk, p * (stays * dot(d_o, v, work.dv) - delta) * logit.steepness(x), q, work.d);
      }
    }
    for (int e = 0; e < work.d; ++e) args.at(flash::dk)[own_k + e] = work.scale * dk[e];
    for (int e = 0; e < work.dv; ++e) args.at(flash::dv)[own_v + e] = dv[e];
  }
}

// One work item: dsink of one head. The sink's column of P has no value, so only -delta is left of its dP.
void run_flash_sinks(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const FlashLayout at(work);
  for (std::int64_t h = begin; h < end; ++h) {
    const float sink = args.at(static_cast<std::size_t>(work.sink))[h];
    double sum = 0;
    for (std::int64_t b = 0; b < work.b; ++b)
      for (std::int64_t i = 0; i < work.s; ++i) {
        const std::int64_t row = at.output(b, i, h);
        const float delta = dot(args.at(flash::o) + row, args.at(flash::d_o) + row, work.dv);
        sum -= static_cast<double>(std::exp(sink - args.at(flash::lse)[at.stat(b, i, h)]) * delta);
      }
    args.at(static_cast<std::size_t>(work.dsink))[h] = static_cast<float>(sum);
  }
}

}  // namespace meshloom::backends::cpu
