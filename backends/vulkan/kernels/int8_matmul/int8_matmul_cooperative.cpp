// Exact products of eight-bit integers on the matrix unit.

#include "backends/simt/kernels/matmul/matmul.h"
#include "backends/vulkan/device/cooperative.h"
#include "hal/math.h"
#include "kernels/int8_matmul/int8_matmul.h"

namespace meshloom::backends::vulkan {
namespace {

using hal::ceil_div;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using kernels::Int8MatmulDims;
using simt::define;

// Numbers of a word, which begin at multiples of a matrix's K.
std::int64_t word_of(const MatrixTile& tile) { return tile.shape.k % 16 == 0 ? 16 : 8; }

// Rows of words, and sixteen bytes more; a matrix of sums per subgroup.
std::int64_t shared_bytes(const MatrixTile& tile) {
  return (tile.bm() + tile.bn()) * (tile.bk + 16) + tile.patch_bytes();
}

std::string unsupported_dtype(const CallView& call, const hal::DeviceInfo& target) {
  if (std::string reason = unsupported_cooperative(target, hal::DType::i8); !reason.empty()) return reason;
  if (!target.has("i8-arithmetic")) return "needs i8-arithmetic, which the driver does not have";
  return simt::unsupported_size(call);
}

Fit fit_tile(const CallView& call, const hal::DeviceInfo& target, const MatrixTile& tile) {
  const Int8MatmulDims d = kernels::int8_matmul_dims(call);
  std::string reason = simt::unsupported_groups(target, tile.groups(d.m, d.n, 1));
  // Numbers of odd rows are read one by one.
  const std::int64_t step = tile.iterations() * (d.k % word_of(tile) == 0 ? 1 : word_of(tile));
  if (reason.empty())
    reason = simt::unsupported_iterations(
        target, static_cast<double>(ceil_div(d.k, tile.bk) * step + tile.end_iterations()));
  return reason.empty() ? Fit::yes(tile.params()) : Fit::no(std::move(reason));
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (const std::string reason = unsupported_dtype(call, target); !reason.empty()) return Fit::no(reason);
  const Int8MatmulDims d = kernels::int8_matmul_dims(call);
  const std::vector<hal::MatrixShape> shapes = simt::matrix_shapes(target, hal::DType::i8);
  for (const hal::MatrixShape& shape : shapes) {
    const std::int64_t lanes = subgroup_choices(target, shape).front();
    const kernels::MatmulDims dims{.g = 1, .m = d.m, .n = d.n, .k = d.k, .bias = -1, .residual = -1};
    if (const auto tile =
            simt::best_tile(simt::matrix_tiles(target, shape, lanes, shared_bytes), target, dims, false))
      return fit_tile(call, target, *tile);
  }
  return Fit::no(simt::unsupported_tiles(target, shapes.front()));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  std::vector<Fit> result;
  if (!unsupported_dtype(call, target).empty()) return result;
  for (const hal::MatrixShape& shape : simt::matrix_shapes(target, hal::DType::i8))
    for (const std::int64_t lanes : subgroup_choices(target, shape))
      for (const MatrixTile& tile : simt::matrix_tiles(target, shape, lanes, shared_bytes))
        if (Fit fit = fit_tile(call, target, tile); fit.ok) result.push_back(std::move(fit));
  // What CPU drivers do only where it is asked for, so that tests run it.
  if (target.is_cpu)
    for (const hal::MatrixShape& shape : simt::matrix_shapes(target, hal::DType::i8)) {
      const MatrixTile tile{shape, subgroup_choices(target, shape).front(), 2, 1, 2, 1, shape.k};
      if (tile.workgroup() > simt::max_invocations(target) ||
          shared_bytes(tile) > simt::workgroup_bytes(target))
        continue;
      if (Fit fit = fit_tile(call, target, tile); fit.ok) {
        fit.params["rolled"] = 1;
        result.push_back(std::move(fit));
      }
    }
  return result;
}

void encode(const EncodeArgs& args) {
  const Int8MatmulDims d = kernels::int8_matmul_dims(args.call);
  const MatrixTile tile = MatrixTile::of(args.choice.params, hal::DType::i8, hal::DType::i32);
  std::vector<hal::Define> defines = tile.defines();
  defines.push_back(define("WIDE", d.k % word_of(tile) == 0));
  defines.push_back(define("WHOLE_STEPS", d.k % tile.bk == 0));
  const bool rolled = simt::has_rolled_sums(args.choice.params, args.device.info());
  if (rolled) defines.push_back({"ROLLED", "1"});
  simt::launch(args, {.kernel = "int8_matmul_cooperative",
                      .defines = std::move(defines),
                      .width = static_cast<std::uint32_t>(tile.workgroup()),
                      .groups = simt::matmul_groups(tile.groups(d.m, d.n, 1)),
                      .bindings = simt::int8_matmul_bindings(args),
                      .constants = {hal::word(d.m), hal::word(d.n), hal::word(d.k),
                                    hal::word(std::int64_t{d.bias >= 0})},
                      .subgroup = required_subgroup(args.device.info(), tile.lanes),
                      .aliased = rolled ? 0b101u : 0u});
}

}  // namespace

kernels::Variant int8_matmul_cooperative() {
  return {.name = "cooperative",
          .kinds = {hal::ProfileKind::gpu},
          .about = "eight-bit integers on the matrix unit, sums of 32 bits",
          .fit = fit,
          .encode = encode,
          .alternatives = alternatives,
          .needs_self_test = true};
}

}  // namespace meshloom::backends::vulkan
