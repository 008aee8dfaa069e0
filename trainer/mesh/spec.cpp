#include "trainer/mesh/spec.h"

#include <algorithm>
#include <tuple>

namespace meshloom::trainer {

bool Spec::operator<(const Spec& other) const {
  return std::tie(dims, partial, flat) < std::tie(other.dims, other.partial, other.flat);
}

bool Spec::cut() const {
  return std::any_of(dims.begin(), dims.end(), [](AxisSet axes) { return !axes.empty(); });
}

Spec whole_spec(int rank) { return {std::vector<AxisSet>(static_cast<std::size_t>(rank)), {}, {}}; }

Spec flat_spec(int rank, AxisSet axes) {
  Spec spec = whole_spec(rank);
  spec.flat = axes;
  return spec;
}

Spec partial_spec(int rank, AxisSet axes) {
  Spec spec = whole_spec(rank);
  spec.partial = axes;
  return spec;
}

Range flat_range(std::int64_t n, AxisSet axes, const Topology& mesh, int rank) {
  Range range{0, n};
  const AxisSet inner = axes & AxisName::fsdp;
  for (const AxisSet part : {inner, axes - inner})
    if (!part.empty()) range = part_of(range, mesh.size(part), mesh.place_of(rank, part));
  return range;
}

kernels::TensorType local_type(const kernels::TensorType& whole, const Spec& spec, const Topology& mesh) {
  kernels::TensorType type = whole;
  if (!spec.flat.empty())
    type.shape = {flat_range(whole.elements(), spec.flat, mesh, mesh.rank()).count};
  else
    for (std::size_t d = 0; d < spec.dims.size(); ++d) type.shape[d] /= mesh.size(spec.dims[d]);
  return type;
}

Layout layout_of(const Division& value, const Topology& mesh, int rank) {
  const auto& [whole, spec, stages] = value;
  Layout layout = whole_layout(whole);
  AxisSet divided = spec.flat;
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    divided |= spec.dims[d];
    layout.extent[d] /= mesh.size(spec.dims[d]);
    layout.begin[d] = layout.extent[d] * mesh.place_of(rank, spec.dims[d]);
  }
  layout.range = {0, kernels::elements(layout.extent)};
  if (!spec.flat.empty()) layout.range = flat_range(whole.elements(), spec.flat, mesh, rank);
  layout.partial = !spec.partial.empty();
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
  if (!spec.flat.empty()) return "flat over " + to_string(spec.flat);
  std::string text;
  for (const AxisSet axes : spec.dims) text += axes.empty() ? "." : "[" + to_string(axes) + "]";
  if (!spec.partial.empty()) text += (text.empty() ? "" : ", ") + ("partial over " + to_string(spec.partial));
  return text;
}

}  // namespace meshloom::trainer
