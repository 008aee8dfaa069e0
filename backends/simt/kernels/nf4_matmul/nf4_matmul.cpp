// Products with four-bit weights: matmul_gpu_tile, which widens B on its way into workgroup memory.
#include "kernels/nf4_matmul/nf4_matmul.h"

#include <algorithm>

#include "backends/simt/kernels/matmul/matmul.h"
#include "kernels/nf4_matmul/nf4.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::Nf4MatmulDims;

kernels::MatmulDims matmul_of(const Nf4MatmulDims& d) {
  return {.g = 1,
          .m = d.m,
          .n = d.n,
          .k = d.k,
          .trans_a = false,
          .trans_b = d.trans_b,
          .bias = d.bias,
          .residual = -1,
          .activation = kernels::Activation::none};
}

// Levels, and what nf4_tile.inc keeps of 64 steps: codes, and a scale for each 32 of them.
constexpr std::int64_t kMorePerColumn = 4 + 64 / 2 + 64 / 32 * 4;

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const std::string reason = unsupported_size(call);
  if (!reason.empty()) return Fit::no(reason);
  return gpu_tile_fit(matmul_of(kernels::nf4_matmul_dims(call)), target, {.more_per_column = kMorePerColumn});
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  if (!unsupported_size(call).empty()) return {};
  return gpu_tile_alternatives(matmul_of(kernels::nf4_matmul_dims(call)), target,
                               {.more_per_column = kMorePerColumn});
}

void encode(const EncodeArgs& args) {
  const Nf4MatmulDims d = kernels::nf4_matmul_dims(args.call);
  std::vector<hal::Binding> bindings{reads(whole_words(args.inputs[2]))};
  if (d.steps >= 0) bindings.push_back(reads(args.inputs[3]));
  const auto& p = args.choice.params;
  const std::int64_t words = kernels::nf4::row_bytes(d.columns) / 4;
  const bool grouped = gpu_tile_prefetches(p, args.device.info()) && words % 4 == 0 && d.block % 32 == 0 &&
                       p.at("bn") % 32 == 0;
  encode_gpu_tile(args, matmul_of(d),
                  {.defines = {{"NF4", d.steps >= 0 ? "2" : "1"}, define("NF4_GROUPED", grouped)},
                   .bindings = bindings,
                   .constants = {hal::word(words), hal::word(kernels::nf4::blocks(d.columns, d.block)),
                                 hal::word(d.block)}});
}

void encode_unpack(const EncodeArgs& args) {
  const kernels::Nf4UnpackDims d = kernels::nf4_unpack_dims(args.call);
  std::vector<hal::Binding> bindings{reads(args.inputs[0]), reads(whole_words(args.inputs[1])),
                                     writes(args.outputs[0])};
  if (d.twice) bindings.push_back(reads(args.inputs[2]));
  const std::int64_t words = kernels::nf4::row_bytes(d.columns) / 4;
  launch(args, {.kernel = "nf4_unpack",
                .defines = {{"NF4", d.twice ? "2" : "1"}},
                .bindings = bindings,
                .constants = {hal::word(d.rows * words), hal::word(d.columns), hal::word(words),
                              hal::word(kernels::nf4::blocks(d.columns, d.block)), hal::word(d.block)},
                .items = d.rows * words});
}

}  // namespace

std::vector<kernels::OpVariants> nf4_matmul_ops() {
  return {
      {"nf4_matmul",
       {kernels::Variant{.name = "gpu_tile",
                         .kinds = {},
                         .about = "tiles through workgroup memory, where four-bit weights arrive as floats",
                         .fit = fit,
                         .encode = encode,
                         .alternatives = alternatives}}},
      {"nf4_unpack", {simt_variant("eight weights per invocation", fit_any_dtype, encode_unpack)}}};
}

}  // namespace meshloom::backends::simt
