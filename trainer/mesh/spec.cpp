#include "trainer/mesh/spec.h"

#include <algorithm>
#include <tuple>

#include "hal/math.h"

namespace meshloom::trainer {

bool Spec::operator<(const Spec& other) const {
  return std::tie(dims, partial, flat, own) < std::tie(other.dims, other.partial, other.flat, other.own);
}

AxisSet Spec::cuts() const {
  AxisSet axes;
  for (const AxisSet of_dim : dims) axes |= of_dim;
  return axes;
}

Spec whole_spec(int rank) { return {std::vector<AxisSet>(static_cast<std::size_t>(rank)), {}, {}, {}}; }

Spec partial_spec(int rank, AxisSet axes) {
  Spec spec = whole_spec(rank);
  spec.partial = axes;
  return spec;
}

Range dim_range(std::int64_t n, AxisSet axes, const Topology& mesh, int rank) {
  Range range{0, n};
  for (const AxisName axis : axes.list()) range = part_of(range, mesh.size(axis), mesh.place_of(rank, axis));
  return range;
}

Range flat_range(std::int64_t n, AxisSet axes, const Topology& mesh, int rank) {
  Range range{0, n};
  const AxisSet inner = axes & AxisName::fsdp;
  for (const AxisSet part : {inner, axes - inner - AxisName::islands})
    if (!part.empty()) range = part_of(range, mesh.size(part), mesh.place_of(rank, part));
  if (!axes.has(AxisName::islands)) return range;
  const std::int64_t piece = island_piece(range.count, mesh);
  const std::int64_t begin = piece * mesh.place_of(rank, AxisName::islands);
  return {range.first + begin, std::min(piece, range.count - begin)};
}

std::int64_t island_piece(std::int64_t n, const Topology& mesh) {
  const std::int64_t islands = mesh.size(AxisName::islands);
  const std::int64_t piece = hal::round_up(hal::ceil_div(n, islands), kIslandBlock);
  return piece * (islands - 1) < n ? piece : 0;
}

kernels::Shape box_shape(const kernels::Shape& whole, const Spec& spec, const Topology& mesh, int rank) {
  kernels::Shape shape = whole;
  for (std::size_t d = 0; d < shape.size(); ++d)
    shape[d] = dim_range(shape[d], spec.dims[d], mesh, rank).count;
  return shape;
}

kernels::TensorType local_type(const kernels::TensorType& whole, const Spec& spec, const Topology& mesh) {
  kernels::TensorType type{whole.dtype, box_shape(whole.shape, spec, mesh, mesh.rank())};
  if (!spec.flat.empty()) type.shape = {flat_range(type.elements(), spec.flat, mesh, mesh.rank()).count};
  return type;
}

Layout layout_of(const Division& value, const Topology& mesh, int rank) {
  const auto& [whole, spec, stages] = value;
  Layout layout = whole_layout(whole);
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    const Range range = dim_range(whole.shape[d], spec.dims[d], mesh, rank);
    layout.begin[d] = range.first;
    layout.extent[d] = range.count;
  }
  layout.range = flat_range(kernels::elements(layout.extent), spec.flat, mesh, rank);
  layout.partial = !spec.partial.empty();
  const AxisSet divided = spec.cuts() | spec.flat;
  if (stages.empty()) {
    layout.first = mesh.place_of(rank, mesh.all() - divided) == 0;
    return layout;
  }
  const int stage = mesh.place_of(rank, AxisName::pipeline);
  layout.first =
      stage == stages.front() && mesh.place_of(rank, mesh.all() - divided - AxisName::pipeline) == 0;
  if (std::find(stages.begin(), stages.end(), stage) == stages.end()) layout.range.count = 0;
  return layout;
}

std::string to_string(const Spec& spec) {
  std::string text;
  for (const AxisSet axes : spec.dims) text += axes.empty() ? "." : "[" + to_string(axes) + "]";
  const auto add = [&](const char* what, AxisSet axes) {
    if (!axes.empty()) text += (text.empty() ? "" : " ") + (what + to_string(axes));
  };
  add("flat over ", spec.flat);
  add("partial over ", spec.partial);
  add("own over ", spec.own);
  return text;
}

}  // namespace meshloom::trainer
