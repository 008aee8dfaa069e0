// permute, stack, split and concat_rows. A permutation is first reduced to the dimensions that it really moves; then it
// is a copy of contiguous rows, or transpositions of tiles that fit the L1 cache.
#include <algorithm>
#include <array>
#include <cstring>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"

namespace meshloom::backends::cpu {
namespace {

constexpr std::int64_t kTile = 32;

// Output dimensions, outermost first, with the input's stride of each; unused leading dimensions have size 1.
struct Moves {
  std::array<std::int64_t, 4> size{1, 1, 1, 1}, stride{0, 0, 0, 0};
};

Moves moves_of(const kernels::Shape& shape, const std::vector<std::int64_t>& order) {
  struct Dim {
    std::int64_t size, stride;
  };
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  std::vector<Dim> dims;
  for (const std::int64_t from : order) {
    const Dim dim{shape.at(static_cast<std::size_t>(from)), strides.at(static_cast<std::size_t>(from))};
    if (dim.size == 1) continue;
    if (!dims.empty() && dims.back().stride == dim.size * dim.stride)
      dims.back() = {dims.back().size * dim.size, dim.stride};
    else
      dims.push_back(dim);
  }
  Moves moves;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    moves.size[4 - dims.size() + i] = dims[i].size;
    moves.stride[4 - dims.size() + i] = dims[i].stride;
  }
  return moves;
}

// The index of row `row` in each output dimension but the innermost.
std::int64_t row_offset(const Moves& moves, std::int64_t row) {
  std::int64_t offset = 0;
  for (std::size_t i = 3; i-- > 0;) {
    offset += row % moves.size[i] * moves.stride[i];
    row /= moves.size[i];
  }
  return offset;
}

Moves read_moves(ConstantReader& constants) {
  Moves moves;
  for (std::int64_t& size : moves.size) size = constants.integer();
  for (std::int64_t& stride : moves.stride) stride = constants.integer();
  return moves;
}

// T is a word as wide as an element.
// Bindings x, y; an item is an output row that is contiguous in the input.
template <typename T>
void run_rows(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const Moves moves = read_moves(constants);
  const std::int64_t n = moves.size[3];
  for (std::int64_t row = begin; row < end; ++row)
    std::memcpy(args.at<T>(1) + row * n, args.at<const T>(0) + row_offset(moves, row),
                static_cast<std::size_t>(n) * sizeof(T));
}

// Bindings x, y. Output dimension `contiguous` is the one that is contiguous in the input; an item is kTile
// of its indices under one index of the two remaining outer dimensions, over the whole innermost dimension.
template <typename T>
void run_tiles(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const Moves moves = read_moves(constants);
  const auto contiguous = static_cast<std::size_t>(constants.integer());
  const std::int64_t n = moves.size[3], stride = moves.stride[3], width = moves.size[contiguous];
  const std::int64_t tiles = hal::ceil_div(width, kTile);
  std::array<std::int64_t, 4> out_stride{};
  out_stride[3] = 1;
  for (std::size_t i = 3; i-- > 0;) out_stride[i] = out_stride[i + 1] * moves.size[i + 1];
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t first = item % tiles * kTile, last = std::min(width, first + kTile);
    std::int64_t from = 0, to = 0, rest = item / tiles;
    for (std::size_t i = 3; i-- > 0;) {
      if (i == contiguous) continue;
      from += rest % moves.size[i] * moves.stride[i];
      to += rest % moves.size[i] * out_stride[i];
      rest /= moves.size[i];
    }
    const auto* x = args.at<const T>(0) + from;
    auto* y = args.at<T>(1) + to;
    for (std::int64_t column = 0; column < n; column += kTile)
      for (std::int64_t i = first; i < last; ++i)
        for (std::int64_t j = column; j < std::min(n, column + kTile); ++j)
          y[i * out_stride[contiguous] + j] = x[i + j * stride];
  }
}

kernels::Fit fit_permute(const kernels::CallView& call, const hal::DeviceInfo&) {
  const std::size_t size = hal::size_of(call.inputs[0].dtype);
  if (size != 4 && size != 2)
    return kernels::Fit::no("element type " + std::string(hal::to_string(call.inputs[0].dtype)) +
                            " does not have 2 or 4 bytes");
  if (call.inputs[0].elements() == 0) return kernels::Fit::no("a tensor without elements");
  return kernels::Fit::yes();
}

void encode_permute(const kernels::EncodeArgs& args) {
  const Moves moves = moves_of(args.call.inputs[0].shape, args.call.attrs.list("order"));
  const std::int64_t elements = args.call.inputs[0].elements();
  const bool wide = hal::size_of(args.call.inputs[0].dtype) == 4;
  if (wide && moves.stride[3] <= 1 && moves.size[2] == 1) {  // the identity
    args.commands.copy(reads(args.inputs[0]), writes(args.outputs[0]), args.label);
    return;
  }
  Constants constants;
  for (const std::int64_t size : moves.size) constants.integer(size);
  for (const std::int64_t stride : moves.stride) constants.integer(stride);
  if (moves.stride[3] <= 1) {
    record(args, wide ? "permute_rows" : "permute_rows_16", elements / moves.size[3],
           {reads(args.inputs[0]), writes(args.outputs[0])}, constants);
    return;
  }
  std::size_t contiguous = 0;
  for (std::size_t i = 0; i < 3; ++i)
    if (moves.stride[i] == 1) contiguous = i;
  const std::int64_t width = moves.size[contiguous];
  record(args, wide ? "permute_tiles" : "permute_tiles_16",
         elements / moves.size[3] / width * hal::ceil_div(width, kTile),
         {reads(args.inputs[0]), writes(args.outputs[0])},
         constants.integer(static_cast<std::int64_t>(contiguous)));
}

void encode_stack(const kernels::EncodeArgs& args) {
  for (std::size_t i = 0; i < args.inputs.size(); ++i) {
    hal::Binding to = writes(args.outputs[0]), from = reads(args.inputs[i]);
    to.offset += static_cast<std::int64_t>(i) * 4;
    to.bytes = from.bytes = 4;
    args.commands.copy(from, to, args.label);
  }
}

// Copies must be of whole words.
kernels::Fit fit_slices(const kernels::CallView& call, const hal::DeviceInfo& target) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types)
      if (type.bytes() % 4 != 0)
        return kernels::Fit::no("a slice of " + std::to_string(type.bytes()) +
                                " bytes is not of whole words");
  return fit_floats(call, target);
}

// Slices follow each other in the whole tensor.
void encode_split(const kernels::EncodeArgs& args) {
  hal::Binding from = reads(args.inputs[0]);
  for (std::size_t i = 0; i < args.outputs.size(); ++i) {
    from.bytes = args.call.outputs[i].bytes();
    hal::Binding to = writes(args.outputs[i]);
    to.bytes = from.bytes;
    args.commands.copy(from, to, args.label);
    from.offset += from.bytes;
  }
}

void encode_join(const kernels::EncodeArgs& args) {
  hal::Binding to = writes(args.outputs[0]);
  for (std::size_t i = 0; i < args.inputs.size(); ++i) {
    to.bytes = args.call.inputs[i].bytes();
    hal::Binding from = reads(args.inputs[i]);
    from.bytes = to.bytes;
    args.commands.copy(from, to, args.label);
    to.offset += to.bytes;
  }
}

}  // namespace

Ops layout_ops() {
  return {{{"permute_rows", run_rows<std::uint32_t>},
           {"permute_tiles", run_tiles<std::uint32_t>},
           {"permute_rows_16", run_rows<std::uint16_t>},
           {"permute_tiles_16", run_tiles<std::uint16_t>}},
          {{"permute",
            {low_precision_variant(
                "copies rows where the last dimension stays in place, otherwise transposes tiles",
                fit_permute, encode_permute)}},
           {"stack", {simd_variant("one copy per scalar", fit_any, encode_stack)}},
           {"split", {low_precision_variant("one copy per slice", fit_slices, encode_split)}},
           {"concat_rows", {low_precision_variant("one copy per slice", fit_slices, encode_join)}}}};
}

}  // namespace meshloom::backends::cpu
