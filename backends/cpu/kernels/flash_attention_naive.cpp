// One query per work item forward and for dq, one key per work item for dk and dv; plain loops.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/kernels/flash_attention_work.h"

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

std::int64_t visible_keys(const FlashWork& work, std::int64_t i) {
  return work.causal ? std::min<std::int64_t>(work.t, i + work.ahead() + 1) : work.t;
}

}  // namespace

void run_flash_naive(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const FlashLayout at(work);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t i = item % work.s, h = item / work.s % work.h, b = item / work.s / work.h;
    const std::int64_t kv = h / work.group();
    const float* q = args.at(flash::q) + at.query(b, i, h);
    float sums[kMaxDim] = {}, largest = -std::numeric_limits<float>::infinity(), total = 0;
    for (std::int64_t j = 0; j < visible_keys(work, i); ++j) {
      const float score = work.scale * dot(q, args.at(flash::k) + at.key(b, j, kv), work.d);
      if (score > largest) {
        const float shrink = std::exp(largest - score);
        total *= shrink;
        for (int e = 0; e < work.d; ++e) sums[e] *= shrink;
        largest = score;
      }
      const float p = std::exp(score - largest);
      total += p;
      add_scaled(sums, p, args.at(flash::v) + at.key(b, j, kv), work.d);
    }
    float* o = args.at(flash::o) + at.query(b, i, h);
    for (int e = 0; e < work.d; ++e) o[e] = sums[e] / total;
    args.at(flash::lse)[at.stat(b, i, h)] = largest + std::log(total);
  }
}

void run_flash_naive_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const FlashLayout at(work);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t i = item % work.s, h = item / work.s % work.h, b = item / work.s / work.h;
    const std::int64_t kv = h / work.group(), row = at.query(b, i, h);
    const float *q = args.at(flash::q) + row, *d_o = args.at(flash::d_o) + row;
    const float lse = args.at(flash::lse)[at.stat(b, i, h)];
    const float delta = dot(args.at(flash::o) + row, d_o, work.d);
    float sums[kMaxDim] = {};
    for (std::int64_t j = 0; j < visible_keys(work, i); ++j) {
      const float *k = args.at(flash::k) + at.key(b, j, kv), *v = args.at(flash::v) + at.key(b, j, kv);
      const float p = std::exp(work.scale * dot(q, k, work.d) - lse);
      add_scaled(sums, p * (dot(d_o, v, work.d) - delta), k, work.d);
    }
    for (int e = 0; e < work.d; ++e) args.at(flash::dq)[row + e] = work.scale * sums[e];
  }
}

void run_flash_naive_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const FlashLayout at(work);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t j = item % work.t, kv = item / work.t % work.kv, b = item / work.t / work.kv;
    const std::int64_t own = at.key(b, j, kv);
    const float *k = args.at(flash::k) + own, *v = args.at(flash::v) + own;
    float dk[kMaxDim] = {}, dv[kMaxDim] = {};
    for (std::int64_t h = kv * work.group(); h < (kv + 1) * work.group(); ++h) {
      for (std::int64_t i = work.causal ? std::max<std::int64_t>(0, j - work.ahead()) : 0; i < work.s; ++i) {
        const std::int64_t row = at.query(b, i, h);
        const float *q = args.at(flash::q) + row, *d_o = args.at(flash::d_o) + row;
        const float delta = dot(args.at(flash::o) + row, d_o, work.d);
        const float p = std::exp(work.scale * dot(q, k, work.d) - args.at(flash::lse)[at.stat(b, i, h)]);
        add_scaled(dv, p, d_o, work.d);
        add_scaled(dk, p * (dot(d_o, v, work.d) - delta), q, work.d);
      }
    }
    for (int e = 0; e < work.d; ++e) {
      args.at(flash::dk)[own + e] = work.scale * dk[e];
      args.at(flash::dv)[own + e] = dv[e];
    }
  }
}

}  // namespace meshloom::backends::cpu
