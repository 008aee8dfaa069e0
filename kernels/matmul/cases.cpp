#include "kernels/core/rng.h"
#include "kernels/matmul/parts.h"

namespace meshloom::kernels::matmul_parts {
namespace {

struct Spec {
  std::string name;
  std::int64_t g = 0, m = 1, n = 1, k = 1;  // g = 0: no batch dimension
  bool trans_a = false, trans_b = false, bias = false, residual = false;
  Activation activation = Activation::none;
  bool slow = false;
  DType dtype = DType::f32;  // of A and B; C is f32
};

Case make(const Spec& s) {
  const auto with_batch = [&](std::int64_t rows, std::int64_t columns) {
    return TensorType{s.dtype, s.g ? Shape{s.g, rows, columns} : Shape{rows, columns}};
  };
  Case result{s.name, {}, {}, s.slow};
  result.inputs = {s.trans_a ? with_batch(s.k, s.m) : with_batch(s.m, s.k),
                   s.trans_b ? with_batch(s.n, s.k) : with_batch(s.k, s.n)};
  if (s.bias) result.inputs.push_back({DType::f32, {s.n}});
  if (s.residual) result.inputs.push_back(kernels::widened(with_batch(s.m, s.n)));
  if (s.dtype != DType::f32) result.attrs.set("dtype", std::string(hal::to_string(DType::f32)));
  if (s.trans_a) result.attrs.set("trans_a", true);
  if (s.trans_b) result.attrs.set("trans_b", true);
  if (s.bias) result.attrs.set("bias", true);
  if (s.residual) result.attrs.set("residual", true);
  if (s.activation != Activation::none) result.attrs.set("activation", std::string(to_string(s.activation)));
  return result;
}

}  // namespace

std::vector<Case> cases() {
  const std::vector<Spec> specs{
      {.name = "one", .m = 1, .n = 1, .k = 1},
      {.name = "dot", .m = 1, .n = 1, .k = 257},
      {.name = "outer", .m = 19, .n = 23, .k = 1},
      {.name = "row", .m = 1, .n = 67, .k = 31},
      {.name = "column", .m = 67, .n = 1, .k = 31},
      {.name = "square", .m = 64, .n = 64, .k = 64},
      {.name = "tail", .m = 37, .n = 53, .k = 29},
      {.name = "tail-ta", .m = 37, .n = 53, .k = 29, .trans_a = true},
      {.name = "tail-tb", .m = 37, .n = 53, .k = 29, .trans_b = true},
      {.name = "tail-tab", .m = 37, .n = 53, .k = 29, .trans_a = true, .trans_b = true},
      {.name = "tile-minus", .m = 127, .n = 127, .k = 127},
      {.name = "tile-plus", .m = 129, .n = 130, .k = 131, .trans_b = true},
      {.name = "tile-plus-ta", .g = 2, .m = 130, .n = 129, .k = 65, .trans_a = true},
      {.name = "wide", .m = 9, .n = 521, .k = 40},
      {.name = "deep", .m = 13, .n = 17, .k = 1031},
      {.name = "few-columns",
       .g = 2,
       .m = 19,
       .n = 5,
       .k = 517,
       .trans_b = true,
       .bias = true,
       .residual = true,
       .activation = Activation::gelu},
      {.name = "few-columns-deep", .m = 33, .n = 8, .k = 4099, .trans_b = true},
      {.name = "deeper", .m = 5, .n = 9, .k = 5003, .trans_a = true},
      {.name = "deeper-epilogue",
       .g = 2,
       .m = 5,
       .n = 19,
       .k = 6007,
       .trans_b = true,
       .bias = true,
       .residual = true,
       .activation = Activation::relu},
      {.name = "weights-of-many-tokens", .m = 40, .n = 24, .k = 4999, .trans_a = true, .residual = true},
      {.name = "aligned-rows",
       .g = 2,
       .m = 129,
       .n = 131,
       .k = 512,
       .trans_b = true,
       .bias = true,
       .residual = true},
      {.name = "wide-deep", .m = 33, .n = 4099, .k = 301},
      {.name = "batch", .g = 3, .m = 33, .n = 18, .k = 21},
      {.name = "batch-tb", .g = 5, .m = 17, .n = 16, .k = 15, .trans_b = true},
      {.name = "batch-ta", .g = 2, .m = 20, .n = 7, .k = 40, .trans_a = true},
      {.name = "bias", .m = 35, .n = 50, .k = 24, .bias = true},
      {.name = "residual", .m = 35, .n = 50, .k = 24, .trans_b = true, .residual = true},
      {.name = "batch-epilogue", .g = 2, .m = 11, .n = 19, .k = 33, .bias = true, .residual = true},
      {.name = "relu", .m = 21, .n = 34, .k = 55, .bias = true, .activation = Activation::relu},
      {.name = "silu", .m = 21, .n = 34, .k = 55, .trans_b = true, .activation = Activation::silu},
      {.name = "gelu", .m = 21, .n = 34, .k = 55, .bias = true, .activation = Activation::gelu},
      {.name = "everything",
       .m = 66,
       .n = 70,
       .k = 65,
       .trans_b = true,
       .bias = true,
       .residual = true,
       .activation = Activation::gelu_tanh},
      {.name = "token", .m = 1, .n = 260, .k = 1032},
      {.name = "token-tb", .m = 1, .n = 130, .k = 1544, .trans_b = true, .bias = true},
      {.name = "tokens", .m = 4, .n = 328, .k = 264, .residual = true, .activation = Activation::silu},
      {.name = "tokens-tail", .m = 7, .n = 203, .k = 517, .bias = true},
      {.name = "tokens-tail-tb", .m = 11, .n = 67, .k = 1027, .trans_b = true, .residual = true},
      {.name = "tokens-ta", .g = 3, .m = 2, .n = 72, .k = 333, .trans_a = true, .trans_b = true},
      {.name = "most-tokens", .m = 16, .n = 136, .k = 520, .bias = true, .activation = Activation::gelu},
      {.name = "most-tokens-tb", .m = 16, .n = 45, .k = 776, .trans_b = true},
      {.name = "weight-bf16", .m = 33, .n = 47, .k = 130, .trans_a = true, .dtype = DType::bf16},
      {.name = "weight-f16-sum",
       .m = 33,
       .n = 47,
       .k = 31,
       .trans_a = true,
       .residual = true,
       .dtype = DType::f16},
      {.name = "square-512", .m = 512, .n = 512, .k = 512, .slow = true},
      {.name = "square-1024", .m = 1024, .n = 1024, .k = 1024, .slow = true},
      {.name = "square-2048", .m = 2048, .n = 2048, .k = 2048, .slow = true},
      {.name = "gpt2-qkv", .m = 256, .n = 2304, .k = 768, .bias = true, .slow = true},
      {.name = "gpt2-mlp", .m = 256, .n = 3072, .k = 768, .bias = true, .slow = true},
      {.name = "gpt2-mlp-dw", .m = 768, .n = 3072, .k = 256, .trans_a = true, .slow = true},
      {.name = "gpt2-logits", .m = 256, .n = 50257, .k = 768, .trans_b = true, .slow = true},
      {.name = "smollm2-q", .m = 128, .n = 576, .k = 576, .slow = true},
      {.name = "smollm2-ffn", .m = 128, .n = 1536, .k = 576, .slow = true},
      {.name = "smollm2-ffn-down", .m = 128, .n = 576, .k = 1536, .slow = true},
      {.name = "smollm2-logits", .m = 128, .n = 49152, .k = 576, .trans_b = true, .slow = true},
      {.name = "deepest", .m = 3, .n = 10, .k = 300007, .trans_b = true, .residual = true, .slow = true},
      {.name = "smollm2-logits-dx", .m = 128, .n = 576, .k = 49152, .slow = true},
      {.name = "llama2-7b-o-token", .m = 1, .n = 4096, .k = 4096, .slow = true},
      {.name = "llama2-7b-o-token-tb", .m = 1, .n = 4096, .k = 4096, .trans_b = true, .slow = true},
      {.name = "smollm2-logits-token", .m = 1, .n = 49152, .k = 576, .trans_b = true, .slow = true},
      {.name = "llama-1b-ffn", .m = 512, .n = 8192, .k = 2048, .slow = true},
      {.name = "llama2-7b-o", .m = 512, .n = 4096, .k = 4096, .slow = true},
  };
  std::vector<Case> result;
  for (const Spec& spec : specs) result.push_back(make(spec));
  return result;
}

// What GPU kernels are compiled for by the upper half of the seed.
Case random_case(const CaseSeed& seed) {
  Rng kind(seed.seed >> 32), rng(seed);
  Spec spec{.name = "random"};
  spec.trans_a = kind.flip();
  spec.trans_b = kind.flip();
  if (kind.flip(0.3)) spec.activation = static_cast<Activation>(kind.integer(0, 4));
  spec.g = rng.flip(0.3) ? rng.integer(1, 4) : 0;
  spec.m = rng.extent(150);
  spec.n = rng.extent(150);
  spec.k = rng.extent(200);
  spec.bias = rng.flip(0.3);
  spec.residual = rng.flip(0.3);
  if (kind.flip(0.3)) {  // as a model writes: a few tokens times a weight
    spec.m = kind.integer(1, 16);
    spec.n = rng.extent(600);
    spec.k = rng.extent(1500);
  } else if (kind.flip(0.2)) {  // as its gradient does: many rows
    spec.m = rng.extent(600);
    spec.n = kind.integer(1, 16);
  }
  return make(spec);
}

}  // namespace meshloom::kernels::matmul_parts
