#include "trainer/mesh/spec.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "hal/error.h"
#include "hal/math.h"

namespace meshloom::trainer {

bool Spec::operator<(const Spec& other) const {
  return std::tie(dims, partial, flat, own, blocks, owner) <
         std::tie(other.dims, other.partial, other.flat, other.own, other.blocks, other.owner);
}

AxisSet Spec::cuts() const {
  AxisSet axes;
  for (const AxisSet of_dim : dims) axes |= of_dim;
  return axes;
}

Spec whole_spec(int rank) { return {std::vector<AxisSet>(static_cast<std::size_t>(rank)), {}, {}, {}, 1}; }

Spec owned_spec(int rank, int owner) {
  Spec spec = whole_spec(rank);
  spec.owner = owner;
  return spec;
}

AxisSet axes_of_values(const Topology& mesh) { return mesh.all() - AxisName::pipeline - AxisName::islands; }

Spec partial_spec(int rank, AxisSet axes) {
  Spec spec = whole_spec(rank);
  spec.partial = axes;
  return spec;
}

namespace {

std::int64_t sum(const std::vector<std::int64_t>& shares) {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

// The shares of the ranks that have the same place over `rows`, which are the first of the axes of rows or all of them.
Range range_of_shares(std::int64_t n, AxisSet rows, const Topology& mesh, int rank) {
  const std::vector<std::int64_t>& shares = mesh.shares();
  const auto inner = static_cast<std::ptrdiff_t>(mesh.size(kRowAxes - rows));
  const auto first = shares.begin() + mesh.place_of(rank, rows) * inner;
  const std::int64_t before = std::accumulate(shares.begin(), first, std::int64_t{0}),
                     own = std::accumulate(first, first + inner, std::int64_t{0}), all = sum(shares);
  const auto begin = [&](std::int64_t share) { return n / all * share + n % all * share / all; };
  return {begin(before), begin(before + own) - begin(before)};
}

// The axes whose parts are in proportion to shares.
AxisSet axes_of_shares(AxisSet axes, const Topology& mesh) {
  return mesh.shares().empty() ? AxisSet() : axes & kRowAxes & mesh.all();
}

}  // namespace

Range dim_range(std::int64_t n, AxisSet axes, const Topology& mesh, int rank) {
  const AxisSet rows = axes_of_shares(axes, mesh);
  Range range = rows.empty() ? Range{0, n} : range_of_shares(n, rows, mesh, rank);
  for (const AxisName axis : (axes - rows).list())
    range = part_of(range, mesh.size(axis), mesh.place_of(rank, axis));
  return range;
}

TwoRuns two_runs(std::int64_t n, AxisSet axes, const Topology& mesh, int rank) {
  const Range range = dim_range(n, axes - AxisName::seq, mesh, rank);
  const std::int64_t runs = 2 * mesh.size(AxisName::seq), length = range.count / runs,
                     place = mesh.place_of(rank, AxisName::seq);
  return {range.first + place * length, range.first + (runs - 1 - place) * length, length};
}

bool divides(std::int64_t n, AxisSet axes, const Topology& mesh) {
  const AxisSet rows = axes_of_shares(axes, mesh);
  if (rows.empty()) return n % mesh.size(axes) == 0;
  const std::int64_t all = sum(mesh.shares());
  return n % all == 0 && std::all_of(mesh.shares().begin(), mesh.shares().end(), [&](std::int64_t share) {
           return n / all * share % mesh.size(axes - rows) == 0;
         });
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
  const std::int64_t piece = hal::round_up(hal::ceil_div(n, islands), kScaleBlock);
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
  const auto fail = [&, &cut = spec] {
    throw hal::Error("layout", "a value that lives longer than a program must be one box on each rank",
                     to_string(cut));
  };
  if (spec.blocks > 1) fail();
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    const Range range = dim_range(whole.shape[d], spec.dims[d], mesh, rank);
    layout.begin[d] = range.first;
    layout.extent[d] = range.count;
    if (!mesh.zigzag(spec.dims[d])) continue;
    if (spec.dims[d] - in_front(spec.dims[d], AxisName::seq) != AxisSet(AxisName::seq)) fail();
    const TwoRuns runs = two_runs(whole.shape[d], spec.dims[d], mesh, rank);
    layout.begin[d] = runs.first;
    layout.two_runs = static_cast<int>(d);
    layout.second = runs.second;
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
  if (spec.blocks > 1) text += " in " + std::to_string(spec.blocks) + " blocks";
  if (spec.owner >= 0) text += " on place " + std::to_string(spec.owner);
  return text;
}

}  // namespace meshloom::trainer
