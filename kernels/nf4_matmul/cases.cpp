#include "kernels/core/rng.h"
#include "kernels/nf4_matmul/nf4.h"
#include "kernels/nf4_matmul/parts.h"

namespace meshloom::kernels::nf4_matmul_parts {
namespace {

struct Spec {
  std::string name;
  std::int64_t m = 1, rows = 1, columns = 1;
  bool trans_b = false, bias = false, residual = false;
  std::int64_t block = nf4::kBlock;
  bool slow = false, twice = false;
};

Case make(const Spec& s) {
  Case result{s.name,
              {{DType::f32, {s.m, s.trans_b ? s.columns : s.rows}},
               {DType::u8, {s.rows, nf4::row_bytes(s.columns)}},
               {s.twice ? DType::u8 : DType::f32, {s.rows, nf4::blocks(s.columns, s.block)}}},
              {{"columns", s.columns}, {"block", s.block}},
              s.slow};
  if (s.trans_b) result.attrs.set("trans_b", true);
  if (s.twice) {
    result.attrs.set("double", true);
    result.inputs.push_back({DType::f32, {s.rows}});
  }
  if (s.bias) {
    result.attrs.set("bias", true);
    result.inputs.push_back({DType::f32, {s.trans_b ? s.rows : s.columns}});
  }
  if (s.residual) {
    result.attrs.set("residual", true);
    result.inputs.push_back({DType::f32, {s.m, s.trans_b ? s.rows : s.columns}});
  }
  return result;
}

}  // namespace

std::vector<Case> cases() {
  const std::vector<Spec> specs{
      {.name = "one", .m = 1, .rows = 1, .columns = 1},
      {.name = "row-tb", .m = 1, .rows = 67, .columns = 130, .trans_b = true},
      {.name = "row", .m = 1, .rows = 130, .columns = 67},
      {.name = "square-tb", .m = 64, .rows = 64, .columns = 64, .trans_b = true},
      {.name = "square", .m = 64, .rows = 64, .columns = 64},
      {.name = "tail-tb", .m = 37, .rows = 53, .columns = 77, .trans_b = true, .bias = true},
      {.name = "tail", .m = 37, .rows = 53, .columns = 77, .bias = true},
      {.name = "odd-tb", .m = 19, .rows = 23, .columns = 9, .trans_b = true},
      {.name = "odd", .m = 19, .rows = 9, .columns = 23},
      {.name = "tiles-tb", .m = 130, .rows = 129, .columns = 321, .trans_b = true, .bias = true},
      {.name = "tiles", .m = 130, .rows = 321, .columns = 129},
      {.name = "rows-tb", .m = 97, .rows = 72, .columns = 328, .trans_b = true, .bias = true},
      {.name = "rows", .m = 131, .rows = 136, .columns = 200, .block = 32, .twice = true},
      {.name = "deep-tb", .m = 9, .rows = 17, .columns = 1031, .trans_b = true},
      {.name = "deep", .m = 9, .rows = 1031, .columns = 18},
      {.name = "small-blocks-tb", .m = 33, .rows = 20, .columns = 100, .trans_b = true, .block = 8},
      {.name = "small-blocks", .m = 33, .rows = 20, .columns = 100, .block = 32},
      {.name = "double-tb",
       .m = 33,
       .rows = 21,
       .columns = 203,
       .trans_b = true,
       .bias = true,
       .twice = true},
      {.name = "double", .m = 33, .rows = 21, .columns = 203, .block = 32, .twice = true},
      {.name = "few-tb",
       .m = 5,
       .rows = 67,
       .columns = 203,
       .trans_b = true,
       .bias = true,
       .block = 32,
       .twice = true},
      {.name = "few-words-tb",
       .m = 5,
       .rows = 67,
       .columns = 2112,
       .trans_b = true,
       .bias = true,
       .block = 32,
       .twice = true},
      {.name = "few-words", .m = 2, .rows = 131, .columns = 288, .block = 32},
      {.name = "one-words", .m = 1, .rows = 264, .columns = 512, .bias = true},
      {.name = "residual-tb",
       .m = 37,
       .rows = 53,
       .columns = 77,
       .trans_b = true,
       .bias = true,
       .residual = true},
      {.name = "residual", .m = 37, .rows = 53, .columns = 77, .residual = true, .twice = true},
      {.name = "residual-tiles-tb", .m = 130, .rows = 136, .columns = 328, .trans_b = true, .residual = true},
      {.name = "residual-deep", .m = 9, .rows = 1031, .columns = 24, .bias = true, .residual = true},
      {.name = "residual-few-tb",
       .m = 3,
       .rows = 67,
       .columns = 2112,
       .trans_b = true,
       .bias = true,
       .residual = true,
       .block = 32,
       .twice = true},
      {.name = "residual-few", .m = 2, .rows = 131, .columns = 288, .residual = true, .block = 32},
      {.name = "few-more-tb", .m = 11, .rows = 33, .columns = 130, .trans_b = true},
      {.name = "llama2-7b-o-decode", .m = 1, .rows = 4096, .columns = 4096, .trans_b = true, .slow = true},
      {.name = "llama2-7b-o-decode-8", .m = 8, .rows = 4096, .columns = 4096, .trans_b = true, .slow = true},
      {.name = "smollm2-q", .m = 256, .rows = 576, .columns = 576, .trans_b = true, .slow = true},
      {.name = "smollm2-ffn", .m = 256, .rows = 1536, .columns = 576, .trans_b = true, .slow = true},
      {.name = "smollm2-ffn-dx", .m = 256, .rows = 1536, .columns = 576, .slow = true},
      {.name = "smollm2-ffn-down", .m = 256, .rows = 576, .columns = 1536, .trans_b = true, .slow = true},
      {.name = "llama2-7b-o", .m = 512, .rows = 4096, .columns = 4096, .trans_b = true, .slow = true},
      {.name = "llama2-7b-o-dx", .m = 512, .rows = 4096, .columns = 4096, .slow = true},
  };
  std::vector<Case> result;
  for (const Spec& spec : specs) result.push_back(make(spec));
  return result;
}

Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  return make({.name = "random",
               .m = rng.flip(0.6) ? rng.extent(150) : rng.integer(64, 150),
               .rows = rng.extent(150),
               .columns = rng.flip() ? rng.extent(200) : 8 * rng.integer(1, 25),
               .trans_b = rng.flip(),
               .bias = rng.flip(0.3),
               .residual = rng.flip(0.3),
               .block = rng.of({64, 64, 128, 32, 8}),
               .twice = rng.flip(0.3)});
}

// Any byte is two codes, those behind a row's end too; scales as pack() gives them are not negative.
void make_packed(bool twice, int part, std::uint64_t seed, const TensorView& into) {
  if (part == 2) return fill_uniform(into, seed, 0, 1.0 / 255);
  if (part == 1 && !twice) return fill_uniform(into, seed, 0, 1);
  auto* bytes = into.as<std::uint8_t>();
  for (std::int64_t i = 0; i < into.type.elements(); ++i)
    bytes[i] = static_cast<std::uint8_t>(mix(seed, static_cast<std::uint64_t>(i)));
}

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  const std::uint64_t own = mix(seed, static_cast<std::uint64_t>(index));
  const Nf4MatmulDims d = nf4_matmul_dims(call);
  if (index == 0 || index == d.bias || index == d.residual) return fill_uniform(into, own, -1, 1);
  make_packed(d.steps >= 0, index - 1, own, into);
}

}  // namespace meshloom::kernels::nf4_matmul_parts
