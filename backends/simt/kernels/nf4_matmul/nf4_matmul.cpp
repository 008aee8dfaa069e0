// Products with four-bit weights: matmul_gpu_tile, which widens B on its way into workgroup memory, and a kernel for few rows.
#include "kernels/nf4_matmul/nf4_matmul.h"

#include <algorithm>

#include "backends/simt/kernels/matmul/dequantized.h"
#include "backends/simt/kernels/matmul/split_k.h"
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
          .residual = d.residual,
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

// The invocations of a workgroup of nf4_few_rows.simt, and a load of codes.
constexpr std::int64_t kFewWidth = 64, kCodes = 32;

struct FewRows {
  std::int64_t across, held;  // invocations along a row of W, and the columns of each
  bool trans_b;

  std::int64_t parts() const { return kFewWidth / across; }
  std::int64_t strip() const { return across * held; }
  Tiles tiles(const Nf4MatmulDims& d) const {
    const std::int64_t step = parts() * (trans_b ? kCodes : 4);
    return {{ceil_div(d.n, strip()), 1, 1},
            step,
            1 + 40 * d.m,
            d.m * (held + (ceil_div(strip(), kFewWidth) + 1) * (parts() + 1))};
  }
};

// The fewest columns that leave work for every core, for W along K; else a line of the cache per row.
FewRows few_rows_of(const Nf4MatmulDims& d, const hal::DeviceInfo& target) {
  if (!d.trans_b) return {8, kCodes, false};
  FewRows few{1, has_narrow_subgroups(target) && d.m > 4 ? 2 : 4, true};
  while (few.held > 1 && ceil_div(d.n, few.held) < 8 * std::max(target.profile.cores, 1)) few.held /= 2;
  return few;
}

Fit few_rows_fit(const CallView& call, const hal::DeviceInfo& target) {
  if (const std::string reason = unsupported_size(call); !reason.empty()) return Fit::no(reason);
  const Nf4MatmulDims d = kernels::nf4_matmul_dims(call);
  // Without trans_b an invocation has 32 sums per row.
  const std::int64_t most = d.trans_b ? 8 : 2;
  if (d.m > most)
    return Fit::no("takes at most " + std::to_string(most) + " rows, not " + std::to_string(d.m));
  if (d.columns % kCodes != 0 || d.block % kCodes != 0)
    return Fit::no(
        "reads 32 weights at a time, which must divide rows of weights and blocks; here are rows of " +
        std::to_string(d.columns) + " and blocks of " + std::to_string(d.block));
  if (max_invocations(target) < kFewWidth)
    return Fit::no("needs workgroups of " + std::to_string(kFewWidth) + " invocations");
  const FewRows few = few_rows_of(d, target);
  const std::int64_t bytes = 4 * (16 + few.strip() * (few.parts() | 1));
  if (bytes > workgroup_bytes(target))
    return Fit::no("needs " + std::to_string(bytes) + " bytes of workgroup memory; the device has " +
                   std::to_string(workgroup_bytes(target)));
  return fit_product({{"across", few.across}, {"held", few.held}}, matmul_of(d), target, few.tiles(d));
}

void encode_few_rows(const EncodeArgs& args) {
  const Nf4MatmulDims d = kernels::nf4_matmul_dims(args.call);
  const FewRows few{args.choice.params.at("across"), args.choice.params.at("held"), d.trans_b};
  const std::int64_t blocks = kernels::nf4::blocks(d.columns, d.block);
  std::vector<hal::Binding> bindings{reads(whole_words(args.inputs[2]))};
  if (d.steps >= 0) bindings.push_back(reads(args.inputs[3]));
  launch_product(args, matmul_of(d),
                 {.kernel = "nf4_few_rows",
                  .defines = {{"NF4", d.steps >= 0 ? "2" : "1"},
                              define("TRANS_B", d.trans_b),
                              define("ROWS", d.m),
                              define("ACROSS", few.across),
                              define("HELD", few.held),
                              define("WIDE_A", d.k % 4 == 0),
                              define("WIDE_SCALES", d.steps < 0 && !d.trans_b && blocks % 4 == 0)},
                  .width = static_cast<std::uint32_t>(kFewWidth),
                  .groups = matmul_groups(few.tiles(d).groups),
                  .bindings = bindings,
                  .constants = {hal::word(kernels::nf4::row_bytes(d.columns) / 4), hal::word(blocks),
                                hal::word(d.block)}});
}

// `inputs`: codes, scales and, where `twice`, steps.
void unpack(const EncodeArgs& args, std::span<const hal::Binding> inputs, const kernels::Nf4UnpackDims& d,
            hal::DType dtype, const hal::Binding& into) {
  std::vector<hal::Binding> bindings{reads(inputs[0]), reads(whole_words(inputs[1])), writes(into)};
  if (d.twice) bindings.push_back(reads(inputs[2]));
  const std::int64_t words = kernels::nf4::row_bytes(d.columns) / 4;
  launch(args, {.kernel = "nf4_unpack",
                .defines = {{"NF4", d.twice ? "2" : "1"}, define("Y_TYPE", dtype_code(dtype))},
                .bindings = bindings,
                .constants = {hal::word(d.rows * words), hal::word(d.columns), hal::word(words),
                              hal::word(kernels::nf4::blocks(d.columns, d.block)), hal::word(d.block)},
                .items = d.rows * words});
}
void encode_unpack(const EncodeArgs& args) {
  unpack(args, args.inputs, kernels::nf4_unpack_dims(args.call), args.call.outputs[0].dtype, args.outputs[0]);
}

std::string unsupported_columns(std::int64_t columns) {
  return columns % 8 == 0
             ? ""
             : "dequantizes eight weights at a time, which must divide rows of " + std::to_string(columns);
}
Fit fit_unpack(const CallView& call, const hal::DeviceInfo& target) {
  if (hal::is_low_precision(call.outputs[0].dtype))
    if (std::string reason = unsupported_columns(kernels::nf4_unpack_dims(call).columns); !reason.empty())
      return Fit::no(std::move(reason));
  return fit_any_dtype(call, target);
}

kernels::MatmulDims dims(const CallView& call) { return matmul_of(kernels::nf4_matmul_dims(call)); }
std::string unsupported_words(const CallView& call) {
  return unsupported_columns(kernels::nf4_matmul_dims(call).columns);
}
void dequantize(const EncodeArgs& args, hal::DType dtype, const hal::Binding& into) {
  const Nf4MatmulDims d = kernels::nf4_matmul_dims(args.call);
  unpack(args, args.inputs.subspan(1), {d.rows, d.columns, d.block, d.steps >= 0}, dtype, into);
}

void encode_pack(const EncodeArgs& args) {
  const kernels::Nf4PackDims d = kernels::nf4_pack_dims(args.call);
  const std::int64_t blocks = kernels::nf4::blocks(d.columns, d.block);
  launch(args, {.kernel = "nf4_pack",
                .bindings = {reads(args.inputs[0]), writes(args.outputs[0]), writes(args.outputs[1])},
                .constants = {hal::word(d.rows * blocks), hal::word(d.columns),
                              hal::word(kernels::nf4::row_bytes(d.columns) / 4), hal::word(blocks),
                              hal::word(d.block)},
                .items = d.rows * blocks});
}

}  // namespace

const QuantizedWeights nf4_weights{dims, unsupported_words, dequantize};

std::vector<kernels::OpVariants> nf4_matmul_ops() {
  return {
      {"nf4_matmul",
       {kernels::Variant{
            .name = "few_rows",
            .kinds = {hal::ProfileKind::gpu},
            .about = "few rows: all sums stay in registers, and the codes are read once, 32 at a time",
            .fit = few_rows_fit,
            .encode = encode_few_rows},
        kernels::Variant{.name = "gpu_tile",
                         .kinds = {},
                         .about = "tiles through workgroup memory, where four-bit weights arrive as floats",
                         .fit = fit,
                         .encode = encode,
                         .alternatives = alternatives}}},
      {"nf4_unpack", {simt_variant("eight weights per invocation", fit_unpack, encode_unpack, true)}},
      {"nf4_pack", {simt_variant("a block per invocation", fit_any_dtype, encode_pack)}}};
}

}  // namespace meshloom::backends::simt
