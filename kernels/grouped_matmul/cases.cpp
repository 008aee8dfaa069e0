#include <algorithm>

#include "kernels/core/rng.h"
#include "kernels/grouped_matmul/parts.h"

namespace meshloom::kernels::grouped_matmul_parts {
namespace {

struct Spec {
  std::string name;
  std::int64_t groups, rows, n, k;
  bool trans_b = false, bias = false, slow = false;
};

std::vector<Spec> specs() {
  return {{"one", 1, 1, 1, 1},
          {"one-group", 1, 37, 53, 29, true},
          {"pairs", 2, 64, 32, 48},
          {"tail", 5, 131, 53, 29},
          {"tail-tb", 5, 131, 53, 29, true},
          {"bias", 4, 90, 35, 24, false, true},
          {"bias-tb", 4, 90, 35, 24, true, true},
          {"many", 64, 150, 17, 33, true},
          {"few-rows", 8, 3, 65, 40, true},
          {"deep", 3, 21, 19, 1031, true},
          {"deep-wide", 2, 130, 257, 320},
          {"one-column", 6, 77, 1, 31, true},
          {"words", 4, 150, 264, 136},
          {"words-tb", 3, 200, 136, 200, true, true},
          {"tiles", 3, 391, 129, 65, true, true},
          {"mixtral-tiny", 8, 1024, 768, 256, true, false, true},
          {"moe-up", 8, 2048, 1536, 576, true, false, true},
          {"moe-down", 8, 2048, 576, 1536, true, false, true},
          {"moe-dx", 8, 2048, 576, 1536, false, false, true},
          {"qwen3-moe", 128, 8192, 768, 2048, true, false, true}};
}

TensorType f32(Shape shape) { return {DType::f32, std::move(shape)}; }
TensorType offsets(std::int64_t groups) { return {DType::i32, {groups + 1}}; }

Case matmul_case(const Spec& s) {
  Case result{s.name,
              {f32({s.rows, s.k}), f32(s.trans_b ? Shape{s.groups, s.n, s.k} : Shape{s.groups, s.k, s.n}),
               offsets(s.groups)},
              {},
              s.slow};
  if (s.trans_b) result.attrs.set("trans_b", true);
  if (s.bias) {
    result.attrs.set("bias", true);
    result.inputs.push_back(f32({s.groups, s.n}));
  }
  return result;
}
Case outer_case(const Spec& s) {
  return {s.name, {f32({s.rows, s.n}), f32({s.rows, s.k}), offsets(s.groups)}, {}, s.slow};
}
Case sum_case(const Spec& s) { return {s.name, {f32({s.rows, s.n}), offsets(s.groups)}, {}, s.slow}; }

template <Case (*make)(const Spec&)>
std::vector<Case> all() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(make(spec));
  return result;
}

Spec random_spec(const CaseSeed& seed) {
  Rng rng(seed);
  return {"random",        rng.integer(1, 12), rng.extent(200), rng.extent(100),
          rng.extent(130), rng.flip(),         rng.flip(0.3)};
}

// Groups of no rows, of all, of a few; some rows of no group behind them.
void fill_offsets(const TensorView& into, std::uint64_t seed, std::int64_t rows) {
  Rng rng(seed);
  const std::int64_t groups = into.type.elements() - 1, used = rng.flip(0.3) ? rng.integer(0, rows) : rows;
  auto* at = into.as<std::int32_t>();
  at[0] = 0;
  for (std::int64_t e = 1; e <= groups; ++e)
    at[e] = static_cast<std::int32_t>(
        e == groups     ? used
        : rng.flip(0.2) ? at[e - 1]
                        : rng.integer(at[e - 1], std::max<std::int64_t>(at[e - 1], used * e / groups)));
}

}  // namespace

std::vector<Case> cases() { return all<matmul_case>(); }
std::vector<Case> cases_outer() { return all<outer_case>(); }
std::vector<Case> cases_sum() { return all<sum_case>(); }
Case random_case(const CaseSeed& seed) { return matmul_case(random_spec(seed)); }
Case random_outer(const CaseSeed& seed) { return outer_case(random_spec(seed)); }
Case random_sum(const CaseSeed& seed) { return sum_case(random_spec(seed)); }

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (into.type.dtype == DType::i32) return fill_offsets(into, mix(seed, 7), call.inputs[0].dim(0));
  fill_uniform(into, mix(seed, static_cast<std::uint64_t>(index)), -1, 1);
}

}  // namespace meshloom::kernels::grouped_matmul_parts
