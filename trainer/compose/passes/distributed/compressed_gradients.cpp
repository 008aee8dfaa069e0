#include "trainer/compose/passes/distributed/compressed_gradients.h"

#include <utility>
#include <vector>

#include "hal/math.h"
#include "kernels/concat/concat.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "trainer/compose/passes/distributed/convert_spec.h"

namespace meshloom::trainer {
namespace {

using kernels::Tensor;
using kernels::collective::Sizes;

// The parts `first` to `last` of x behind one another, each with zeros behind it up to `piece` values.
Tensor in_pieces(Tensor x, const Sizes& parts, std::int64_t piece, std::int64_t first, std::int64_t last) {
  if (last - first == 1) return padded(slice_dim(x, 0, {parts.before(first), parts.at(first)}), piece);
  const std::int64_t middle = first + (last - first) / 2;
  const auto row = [&](std::int64_t from, std::int64_t to) {
    return kernels::reshape(in_pieces(x, parts, piece, from, to), {1, (to - from) * piece});
  };
  const Tensor front = row(first, middle), back = row(middle, last);
  return kernels::reshape(kernels::concat(front, back), {(last - first) * piece});
}

// All parts so.
Tensor in_pieces(Tensor x, const Sizes& parts, std::int64_t piece) {
  const std::int64_t places = parts.places(), size = places * piece;
  if (parts.total() == size) return x;
  if (parts.runs().size() > 1) return in_pieces(x, parts, piece, 0, places);
  const std::int64_t part = parts.at(0);
  return kernels::reshape(pad_dim(kernels::reshape(x, {places, part}), 1, {0, part}, piece), {size});
}

}  // namespace

Tensor CompressedGradients::scatter_sum(const std::string& path, Tensor x, AxisSet over, const Sizes& parts,
                                        std::int64_t largest) {
  if (largest < kScaleBlock) return {};
  // As large on every rank, so that the state is one tensor.
  const std::int64_t piece = hal::round_up(largest, compressor_.block());
  const std::int64_t places = mesh_.size(over), size = places * piece, own = parts.at(mesh_.place(over));
  const std::string name = std::string(kGradientError) + to_string(over) + "/" + path;
  Spec spec = whole_spec(2);
  spec.flat = axes_;
  divided_[name] = {{kernels::DType::f32, {mesh_.size(axes_), size}}, spec};
  const Tensor error = builder_.input(name, {kernels::DType::f32, {size}}, kernels::Role::optimizer);
  x = reshaped(x, {x.type().elements()});
  std::vector<Tensor> tensors = compressor_.compress(in_pieces(x, parts, piece), error, size);
  const Tensor all =
      compressor_.all_to_all(std::move(tensors), {to_string(over), mesh_.place(over)}, places, piece);
  if (own == piece) return kernels::reduce_sum(all, 1);
  return kernels::reshape(kernels::slice_features(all, 0, own, places), {own});
}

}  // namespace meshloom::trainer
