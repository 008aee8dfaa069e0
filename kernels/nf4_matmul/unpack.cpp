// The contract of nf4_unpack.
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/nf4_matmul/nf4.h"
#include "kernels/nf4_matmul/parts.h"

namespace meshloom::kernels::nf4_matmul_parts {
namespace {

Shape with(Shape rows, std::int64_t last) {
  rows.push_back(last);
  return rows;
}

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("nf4_unpack", inputs, attrs);
  rules.attributes({"columns", "block"}, {"double", "dtype"});
  const bool twice = rules.flag("double");
  std::vector<std::string> names{"codes", "scales"};
  if (twice) names.push_back("steps");
  rules.inputs(std::move(names));
  rules.dtype(0, DType::u8);
  rules.dtype(1, twice ? DType::u8 : DType::f32);
  rules.rank(0, 2, 3);
  const std::int64_t columns = rules.integer("columns"), block = rules.integer("block");
  require_sizes(rules, columns, block);
  const Shape rows = leading(rules[0].shape);
  rules.shape(0, with(rows, nf4::row_bytes(columns)));
  rules.shape(1, with(rows, nf4::blocks(columns, block)));
  if (twice) {
    rules.dtype(2, DType::f32);
    rules.shape(2, rows);
  }
  return {{rules.result_dtype(DType::f32), with(rows, columns)}};
}

// Rounding to 16 bits is what narrow() does around it.
void reference_unpack(const CallView& call, std::span<const ConstTensorView> inputs,
                      std::span<const TensorView> outputs) {
  const Nf4UnpackDims d = nf4_unpack_dims(call);
  const std::vector<float> scales = scales_of(inputs[1], d.twice ? inputs[2].as<float>() : nullptr, d.rows,
                                              nf4::blocks(d.columns, d.block));
  nf4::unpack(inputs[0].as<std::uint8_t>(), scales.data(), d.rows, d.columns, d.block,
              outputs[0].as<float>());
}

Case make(std::string name, Shape rows, std::int64_t columns, std::int64_t block, bool twice,
          bool slow = false) {
  Case result{std::move(name),
              {{DType::u8, with(rows, nf4::row_bytes(columns))},
               {twice ? DType::u8 : DType::f32, with(rows, nf4::blocks(columns, block))}},
              {{"columns", columns}, {"block", block}},
              slow};
  if (twice) {
    result.attrs.set("double", true);
    result.inputs.push_back({DType::f32, rows});
  }
  return result;
}

std::vector<Case> unpack_cases() {
  return {make("one", {1}, 1, 64, false),
          make("rows", {37}, 130, 64, false),
          make("odd", {9}, 23, 8, false),
          make("experts", {3, 17}, 77, 32, false),
          make("double", {2, 21}, 203, 64, true),
          make("double-rows", {65}, 64, 8, true),
          make("qwen3-30b-up", {128, 768}, 2048, 64, false, true)};
}

Case random_unpack(const CaseSeed& seed) {
  Rng rng(seed);
  Shape rows{rng.extent(90)};
  if (rng.flip()) rows.insert(rows.begin(), rng.integer(1, 5));
  return make("random", rows, rng.extent(200), rng.of({64, 128, 32, 8}), rng.flip(0.3));
}

void make_unpack_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  make_packed(nf4_unpack_dims(call).twice, index, mix(seed, static_cast<std::uint64_t>(index)), into);
}

// Columns are cut by whole blocks.
std::string partition(const CallView& call) {
  const Nf4UnpackDims d = nf4_unpack_dims(call);
  const std::string rows = call.inputs[0].rank() == 3 ? "en" : "n",
                    weight = rows + (d.columns % d.block == 0 ? "K" : ".");
  return weight + "," + weight + (d.twice ? "," + rows : "") + "->" + weight;
}

std::vector<Tensor> local(const LocalArgs& args) {
  Attrs attrs = args.attrs;
  if (const auto cut = args.cuts.find('K'); cut != args.cuts.end())
    attrs.set("columns", args.attrs.integer("columns") / cut->second.places);
  return args.builder.call(args.whole.op, args.inputs, attrs);
}

// Weights of 16 bits wherever a step has such activations: both sides of a product are of one dtype.
LowPrecision low_precision(const CallView&) { return {.attribute = true, .always = true}; }

}  // namespace

Contract unpack_contract() {
  return {.name = "nf4_unpack",
          .infer = infer,
          .flops = [](const CallView& call) { return static_cast<double>(call.outputs[0].elements()); },
          .bytes = bytes_once,
          .reference = reference_unpack,
          .low_precision = low_precision,
          .partition = partition,
          .local = local,
          .tolerance = [](const CallView&) { return sum_tolerance(1); },
          .cases = unpack_cases,
          .in_place = never_in_place,
          .make_input = make_unpack_input,
          .random_case = random_unpack};
}

}  // namespace meshloom::kernels::nf4_matmul_parts

namespace meshloom::kernels {

Nf4UnpackDims nf4_unpack_dims(const CallView& call) {
  const std::int64_t columns = call.attrs.integer("columns");
  return {call.outputs[0].elements() / columns, columns, call.attrs.integer("block"),
          call.attrs.flag("double")};
}

Tensor nf4_unpack(Tensor codes, Tensor scales, const Nf4Options& options) {
  std::vector<Tensor> inputs{codes, scales};
  Attrs attrs{{"columns", options.columns}, {"block", options.block}};
  if (options.steps) {
    attrs.set("double", true);
    inputs.push_back(options.steps);
  }
  return codes.builder->call1("nf4_unpack", inputs, std::move(attrs));
}

}  // namespace meshloom::kernels
