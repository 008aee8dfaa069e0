#include <algorithm>
#include <cmath>

#include "kernels/flash_attention/parts.h"
#include "kernels/random.h"

namespace meshloom::kernels::flash_attention_parts {
namespace {

struct Spec {
  std::string name;
  std::int64_t b = 1, s = 1, t = 1, h = 1, kv = 1, d = 16;
  bool causal = true;
  double scale = 0;
  bool slow = false;
};

Case forward(const Spec& s) {
  const TensorType q{DType::f32, {s.b, s.s, s.h, s.d}}, k{DType::f32, {s.b, s.t, s.kv, s.d}};
  Case result{s.name, {q, k, k}, {}, s.slow};
  if (s.causal) result.attrs.set("causal", true);
  result.attrs.set("scale", s.scale != 0 ? s.scale : 1 / std::sqrt(static_cast<double>(s.d)));
  return result;
}
Case backward(const Spec& s) {
  Case result = forward(s);
  const TensorType q = result.inputs[0];
  result.inputs.insert(result.inputs.end(), {q, {DType::f32, {s.b, s.h, s.s}}, q});
  return result;
}

std::vector<Spec> specs() {
  return {
      {.name = "one"},
      {.name = "two", .s = 2, .t = 2},
      {.name = "tile", .s = 64, .t = 64, .h = 2, .kv = 2, .d = 64},
      {.name = "tail", .b = 2, .s = 37, .t = 37, .h = 3, .kv = 3, .d = 32},
      {.name = "tail-full", .b = 2, .s = 37, .t = 37, .h = 3, .kv = 3, .d = 32, .causal = false},
      {.name = "grouped", .b = 2, .s = 33, .t = 33, .h = 6, .kv = 2, .d = 24},
      {.name = "one-kv", .s = 65, .t = 65, .h = 4, .kv = 1, .d = 16},
      {.name = "decode", .b = 3, .s = 1, .t = 129, .h = 4, .kv = 2, .d = 64},
      {.name = "chunk", .s = 17, .t = 83, .h = 2, .kv = 1, .d = 40},
      {.name = "cross", .s = 61, .t = 19, .h = 2, .kv = 2, .d = 20, .causal = false},
      {.name = "cross-long", .s = 5, .t = 131, .h = 2, .kv = 2, .d = 80, .causal = false},
      {.name = "d80", .s = 31, .t = 31, .h = 2, .kv = 1, .d = 80},
      {.name = "d128", .s = 67, .t = 67, .h = 2, .kv = 2, .d = 128},
      {.name = "d256", .s = 35, .t = 35, .h = 1, .kv = 1, .d = 256},
      {.name = "d72", .s = 129, .t = 129, .h = 1, .kv = 1, .d = 72},
      {.name = "odd-d", .s = 23, .t = 29, .h = 3, .kv = 1, .d = 19},
      {.name = "sharp", .s = 41, .t = 41, .h = 2, .kv = 2, .d = 64, .scale = 2.0},
      {.name = "llama-tiny", .b = 2, .s = 64, .t = 64, .h = 4, .kv = 2, .d = 16},
      {.name = "smollm2", .s = 128, .t = 128, .h = 9, .kv = 3, .d = 64, .slow = true},
      {.name = "gpt2", .b = 4, .s = 256, .t = 256, .h = 12, .kv = 12, .d = 64, .slow = true},
      {.name = "gpt2-1024", .s = 1024, .t = 1024, .h = 12, .kv = 12, .d = 64, .slow = true},
      {.name = "llama-1b", .s = 512, .t = 512, .h = 32, .kv = 8, .d = 64, .slow = true},
      {.name = "llama2-7b", .s = 512, .t = 512, .h = 32, .kv = 32, .d = 128, .slow = true},
  };
}

Spec random_spec(std::uint64_t seed) {
  Dice dice(seed);
  Spec spec{.name = "random"};
  spec.b = dice.integer(1, 3);
  spec.kv = dice.integer(1, 3);
  spec.h = spec.kv * dice.integer(1, 4);
  spec.d = dice.of({16, 19, 20, 24, 32, 40, 48, 64, 72, 80, 96, 128, 160, 256});
  spec.causal = dice.flip(0.6);
  spec.s = dice.extent(70);
  spec.t = dice.extent(140);
  if (spec.causal) spec.t = dice.flip() ? spec.s : std::max(spec.s, spec.t);
  if (dice.flip(0.2)) spec.scale = dice.uniform(0.05, 0.6);
  return spec;
}

std::vector<Case> all(Case (*make)(const Spec&)) {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(make(spec));
  return result;
}

}  // namespace

std::vector<Case> cases() { return all(forward); }
std::vector<Case> cases_grad() { return all(backward); }
Case random_case(std::uint64_t seed) { return forward(random_spec(seed)); }
Case random_grad(std::uint64_t seed) { return backward(random_spec(seed)); }

void make_input_grad(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  const auto plain = [&](int which, const TensorView& view) {
    fill_uniform(view, mix(seed, static_cast<std::uint64_t>(which)), -1, 1);
  };
  if (index != 3 && index != 4) return plain(index, into);
  std::vector<HostTensor> qkv;
  std::vector<ConstTensorView> from;
  std::vector<TensorType> in;
  for (int i = 0; i < 3; ++i) {
    HostTensor& x = qkv.emplace_back(call.inputs[static_cast<std::size_t>(i)]);
    plain(i, {x.type, x.data.data()});
    in.push_back(x.type);
  }
  for (const HostTensor& x : qkv) from.push_back({x.type, x.data.data()});
  HostTensor other(call.inputs[index == 3 ? 4 : 3]);
  const TensorView spare{other.type, other.data.data()};
  const std::vector<TensorView> to{index == 3 ? into : spare, index == 3 ? spare : into};
  const std::vector<TensorType> out{to[0].type, to[1].type};
  reference({"flash_attention", in, out, call.attrs}, from, to);
}

}  // namespace meshloom::kernels::flash_attention_parts
