#include "trainer/compose/passes/distributed/convert_spec.h"

#include <algorithm>
#include <utility>

#include "hal/math.h"
#include "kernels/cast/cast.h"
#include "kernels/collective/collective.h"
#include "kernels/concat/concat.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/split/split.h"

namespace meshloom::trainer {
namespace {

using kernels::Shape;
using kernels::Tensor;
using kernels::TensorType;
using kernels::collective::Sizes;

// Of more ranks no rank gets a summand from each: they are added up along one axis after another.
constexpr int kGatheredFromAtMost = 256;
constexpr int kSentToAtMost = 256;  // ranks, by one

// A shape seen from one of its dimensions.
struct AroundDim {
  std::int64_t outer = 1, size = 1, inner = 1;
};

AroundDim around(const Shape& shape, std::size_t d) {
  AroundDim a;
  for (std::size_t i = 0; i < shape.size(); ++i) (i < d ? a.outer : i > d ? a.inner : a.size) *= shape[i];
  return a;
}

// The dimension becomes the first, as a tensor of rank 3: (size, outer, inner).
Tensor dim_first(Tensor x, std::size_t d) {
  const auto [outer, size, inner] = around(x.shape(), d);
  if (outer == 1) return reshaped(x, {size, 1, inner});
  return kernels::permute(reshaped(x, {outer, size, inner}), {1, 0, 2});
}

// The inverse, to this shape.
Tensor dim_back(Tensor x, std::size_t d, const Shape& shape) {
  const auto [outer, size, inner] = around(shape, d);
  if (outer > 1) x = kernels::permute(reshaped(x, {size, outer, inner}), {1, 0, 2});
  return reshaped(x, shape);
}

Shape with_dim(Shape shape, std::size_t d, std::int64_t size) {
  shape[d] = size;
  return shape;
}

// The two runs of `places` that a place of zigzag has of dimension d, behind one another.
Tensor slice_zigzag(Tensor x, std::size_t d, std::int64_t places, std::int64_t place) {
  const std::int64_t runs = 2 * places, length = x.shape()[d] / runs;
  const std::vector<Tensor> parts = kernels::split(dim_first(x, d), length);
  const auto part = [&](std::int64_t run) { return parts.at(static_cast<std::size_t>(run)); };
  return dim_back(kernels::concat_rows({part(place), part(runs - 1 - place)}), d,
                  with_dim(x.shape(), d, 2 * length));
}

// What the rank at this place has, as a tensor of this shape on all of them. The others may give anything.
Tensor copy_of(Tensor x, AxisSet over, const Topology& mesh, std::int64_t place, const Shape& shape) {
  Sizes sizes;
  sizes.add(place, 0);
  sizes.add(1, kernels::elements(shape));
  sizes.add(mesh.size(over) - place - 1, 0);
  return kernels::all_gather(x, {to_string(over), mesh.place(over)}, sizes, shape);
}

// Whether the axis fsdp has others in front of it, so that ranges of elements stand in another order than places (flat_range).
bool fsdp_is_within(AxisSet all) { return all.has(AxisName::fsdp) && all.list().front() != AxisName::fsdp; }

class Conversion {
 public:
  Conversion(const TensorType& whole, const Topology& mesh, const ScatterSum& scatter_sum)
      : whole_(whole), mesh_(mesh), scatter_sum_(scatter_sum) {}

  Tensor run(Tensor x, const Spec& from, const Spec& to) const {
    if (from == to) return x;
    if (to.owner >= 0) return gathered_to(run(x, from, ranges_of_all()), to.owner);
    if (from.owner >= 0 && !to.flat.empty() && can_gather_to_owner(whole_, mesh_))
      return run(scattered_from(x, from.owner), ranges_of_all(), to);
    if (from.owner >= 0)
      return run(copy_of(x, axes_of_values(mesh_), mesh_, from.owner, whole_.shape),
                 whole_spec(whole_.rank()), to);
    const AxisSet sums = from.partial - to.partial;
    if (!sums.empty()) return summed(x, from, to, sums);
    if (const AxisSet summands = to.partial - from.partial; !summands.empty()) {
      Spec before = to;
      before.partial = from.partial;
      return kernels::scale(run(x, from, before), mesh_.place(summands) == 0 ? 1 : 0);
    }
    if (from.along_dims() == to.along_dims()) return ranges(x, from, to);
    // Ranges are gathered before dimensions are cut otherwise, and cut again behind.
    Spec dims = to;
    dims.flat = {};
    Spec box = from;
    box.flat = {};
    return ranges(along_dims(ranges(x, from, box), box, dims), dims, to);
  }

 private:
  Shape box(const Spec& spec) const { return box_shape(whole_.shape, spec, mesh_, mesh_.rank()); }
  std::int64_t elements(const Spec& spec) const { return kernels::elements(box(spec)); }
  kernels::GroupPlace group(AxisSet axes) const { return {to_string(axes), mesh_.place(axes)}; }

  Tensor narrowed(Tensor sum) const {
    return sum.dtype() == whole_.dtype ? sum : kernels::cast(sum, whole_.dtype);
  }

  // Adds up over `sums`, all or some of the axes over which x is partial.
  Tensor summed(Tensor x, const Spec& from, const Spec& to, AxisSet sums) const {
    Spec next = from;
    next.partial = from.partial - sums;
    // Along a dimension that is to be cut by axes of the sum.
    for (std::size_t d = 0; d < from.dims.size(); ++d) {
      const AxisSet added = (to.dims[d] - from.dims[d]) & sums;
      if (added.empty() || (from.dims[d] | added) != to.dims[d] || !suffix(to.dims[d], added)) continue;
      if (seq_is_alone(added, to.blocks)) continue;
      next.partial = from.partial - added;
      next.dims[d] = to.dims[d];
      return run(sum_scattered(x, from, d, added), next, to);
    }
    // All ranks must decide alike, also those that have larger parts than others.
    const auto [smallest, largest] = box_sizes(from);
    if (smallest < 4 * mesh_.size(sums) && mesh_.size(sums) > kGatheredFromAtMost) {
      const std::vector<AxisName> axes = sums.list();
      for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis)
        x = summed_whole(x, *axis, smallest < 4 * mesh_.size(*axis));
      return run(x, next, to);
    }
    // A part of each element for every rank would be less than one element.
    if (smallest < 4 * mesh_.size(sums) || !next.partial.empty()) return run(sum_gathered(x, sums), next, to);
    next.flat = sums;
    return run(sum_ranges(x, elements(from), sums, largest), next, to);
  }

  // Whether these are the innermost axes of the set.
  static bool suffix(AxisSet set, AxisSet axes) {
    const std::vector<AxisName> all = set.list(), last = axes.list();
    return last.size() <= all.size() && std::equal(last.rbegin(), last.rend(), all.rbegin());
  }

  // The axes with which both lists begin.
  static AxisSet common_prefix(AxisSet a, AxisSet b) {
    const std::vector<AxisName> left = a.list(), right = b.list();
    AxisSet common;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()) && left[i] == right[i]; ++i)
      common |= left[i];
    return common;
  }

  // Whether these axes have seq among them, which is gathered and cut by itself: it takes some of every block, or two runs.
  bool seq_is_alone(AxisSet axes, std::int64_t blocks) const {
    return axes.has(AxisName::seq) && (blocks > 1 || mesh_.zigzag(axes));
  }

  // Axes of a dimension, in groups that are gathered and cut one after another.
  std::vector<AxisSet> steps(AxisSet axes, std::int64_t blocks) const {
    if (!seq_is_alone(axes, blocks)) return {axes};
    std::vector<AxisSet> list{in_front(axes, AxisName::seq), AxisName::seq, {}};
    list[2] = axes - list[0] - list[1];
    std::erase(list, AxisSet());
    return list;
  }

  // The blocks that a rank has of dimension d, each of which seq cuts.
  std::int64_t own_blocks(const Spec& spec, std::size_t d) const {
    return spec.blocks == 1
               ? 1
               : dim_range(spec.blocks, in_front(spec.dims[d], AxisName::seq), mesh_, mesh_.rank()).count;
  }

  // The parts of a range over `outer` that the ranks which differ in `over` have of n elements: over outer | over.
  Sizes counts(std::int64_t n, AxisSet outer, AxisSet over) const {
    return sizes(n, outer | over, over, flat_range);
  }

  // The same of a dimension.
  Sizes dim_counts(std::int64_t n, AxisSet axes, AxisSet over) const {
    return sizes(n, axes, over, dim_range);
  }

  Sizes sizes(std::int64_t n, AxisSet axes, AxisSet over,
              Range (*range)(std::int64_t, AxisSet, const Topology&, int)) const {
    const bool by_shares = range == dim_range && !mesh_.shares().empty() && !(axes & kRowAxes).empty();
    if (const std::int64_t parts = mesh_.size(axes); !by_shares && n % parts == 0)
      return Sizes::equal(mesh_.size(over), n / parts);
    Sizes sizes;
    for (const int rank : mesh_.group(over)) sizes.add(1, range(n, axes, mesh_, rank).count);
    return sizes;
  }

  // The elements of the smallest and the largest part along dimensions that a rank has.
  std::pair<std::int64_t, std::int64_t> box_sizes(const Spec& spec) const {
    std::int64_t smallest = whole_.elements(), largest = 0;
    for (const int rank : mesh_.group(spec.cuts())) {
      const std::int64_t n = kernels::elements(box_shape(whole_.shape, spec, mesh_, rank));
      smallest = std::min(smallest, n);
      largest = std::max(largest, n);
    }
    return {smallest, largest};
  }

  // `largest` is the most elements that any rank has of x.
  Tensor sum_ranges(Tensor x, std::int64_t n, AxisSet axes, std::int64_t largest) const {
    const AxisSet inner = axes & AxisName::fsdp;
    AxisSet done;
    for (const AxisSet over : {inner, axes - inner}) {
      if (over.empty()) continue;
      const Sizes parts = counts(n, done, over);
      done |= over;
      largest = hal::ceil_div(largest, mesh_.size(over));
      Tensor sum = scatter_sum_ ? scatter_sum_(x, over, parts, largest) : Tensor{};
      x = sum ? sum : scatter_sum(x, over, parts, {flat_range(n, done, mesh_, mesh_.rank()).count});
    }
    return x;
  }

  // Place i gets and adds up everybody's i-th part, which has parts[i] elements.
  Tensor scatter_sum(Tensor x, AxisSet over, const Sizes& parts, const Shape& shape) const {
    x = kernels::all_to_all_alike(x, group(over), parts, {mesh_.size(over), parts.at(mesh_.place(over))});
    return reshaped(narrowed(kernels::reduce_sum(x, 1)), shape);
  }

  Tensor sum_scattered(Tensor x, const Spec& from, std::size_t d, AxisSet over) const {
    const Shape before = x.shape();
    const std::int64_t row = x.type().elements() / before[d];
    const Sizes parts = dim_counts(whole_.shape[d], from.dims[d] | over, over);
    const std::int64_t own = parts.at(mesh_.place(over));
    const auto [outer, size, inner] = around(before, d);
    x = scatter_sum(dim_first(x, d), over, parts.times(row), {own, outer, inner});
    return dim_back(x, d, with_dim(before, d, own));
  }

  // The whole sum on every rank.
  Tensor summed_whole(Tensor x, AxisSet axes, bool is_gathered) const {
    if (is_gathered) return sum_gathered(x, axes);
    const Shape shape = x.shape();
    const std::int64_t n = x.type().elements();
    return reshaped(gathered(sum_ranges(x, n, axes, n), n, axes, {}), shape);
  }

  Tensor sum_gathered(Tensor x, AxisSet axes) const {
    const std::int64_t places = mesh_.size(axes), n = x.type().elements();
    const Shape shape = x.shape();
    const Tensor all = kernels::all_gather(x, group(axes), Sizes::equal(places, n), {places, n});
    return reshaped(narrowed(kernels::reduce_sum(all, 1)), shape);
  }

  // Between ranges of one box; no range is the box itself.
  Tensor ranges(Tensor x, const Spec& from, const Spec& to) const {
    if (from.flat == to.flat) return x;
    const std::int64_t n = elements(from);
    // Two that differ in other axes than fsdp have only their ranges over fsdp in common, if both have them.
    const AxisSet over = from.flat & to.flat & AxisName::fsdp;
    x = gathered(x, n, from.flat, over);
    x = sliced(x, n, over, to.flat);
    return to.flat.empty() ? reshaped(x, box(to)) : x;
  }

  Spec ranges_of_all() const {
    Spec spec = whole_spec(whole_.rank());
    spec.flat = axes_of_values(mesh_);
    return spec;
  }

  // Of equal ranges in the order of places, those in the order of their elements, or the other way round.
  Tensor in_order(Tensor x, bool of_elements) const {
    const AxisSet all = axes_of_values(mesh_);
    std::int64_t outer = 1;
    for (const AxisName axis : all.list()) {
      if (axis == AxisName::fsdp) break;
      outer *= mesh_.size(axis);
    }
    const std::int64_t ranks = mesh_.size(AxisName::fsdp), inner = x.type().elements() / (outer * ranks);
    x = of_elements ? reshaped(x, {outer, ranks, inner}) : reshaped(x, {ranks, outer, inner});
    return kernels::permute(x, {1, 0, 2});
  }

  // From ranges over all axes to the rank that has the whole.
  Tensor gathered_to(Tensor x, int owner) const {
    const AxisSet all = axes_of_values(mesh_);
    x = kernels::gather_to(x, group(all), counts(whole_.elements(), {}, all), owner, {whole_.elements()});
    if (mesh_.place(all) != owner) return x;
    return reshaped(fsdp_is_within(all) ? in_order(x, true) : x, whole_.shape);
  }

  // The other way round.
  Tensor scattered_from(Tensor x, int owner) const {
    const AxisSet all = axes_of_values(mesh_);
    const Sizes sizes = counts(whole_.elements(), {}, all);
    const std::int64_t place = mesh_.place(all);
    if (place == owner && fsdp_is_within(all)) x = in_order(x, false);
    return kernels::scatter_from(x, group(all), sizes, owner, {sizes.at(place)});
  }

  // From a range over `from` to one over `to`, a subset.
  Tensor gathered(Tensor x, std::int64_t n, AxisSet from, AxisSet to) const {
    const AxisSet inner = AxisSet(AxisName::fsdp);
    for (const AxisSet over : {from - to - inner, (from - to) & inner}) {
      if (over.empty()) continue;
      from = from - over;
      x = kernels::all_gather(x, group(over), counts(n, from, over),
                              {flat_range(n, from, mesh_, mesh_.rank()).count});
    }
    return x;
  }

  Tensor sliced(Tensor x, std::int64_t n, AxisSet from, AxisSet to) const {
    if (from == to) return x;
    const Range outer = flat_range(n, from, mesh_, mesh_.rank()),
                own = flat_range(n, to, mesh_, mesh_.rank());
    x = kernels::slice_features(reshaped(x, {1, outer.count}), own.first - outer.first, own.count);
    return reshaped(x, {own.count});
  }

  Tensor along_dims(Tensor x, Spec at, const Spec& to) const {
    for (std::size_t d = 0; d < at.dims.size(); ++d) {
      AxisSet kept = common_prefix(at.dims[d], to.dims[d]);
      if (kept.has(AxisName::seq) && at.blocks != to.blocks) kept = in_front(kept, AxisName::seq);
      const std::vector<AxisSet> list = steps(at.dims[d] - kept, at.blocks);
      for (auto over = list.rbegin(); over != list.rend() && kept != at.dims[d]; ++over)
        x = gathered_along(x, at, d, *over);
    }
    at.blocks = to.blocks;
    for (std::size_t d = 0; d < at.dims.size(); ++d) {
      if (at.dims[d] == to.dims[d]) continue;
      for (const AxisSet over : steps(to.dims[d] - at.dims[d], to.blocks)) {
        const Range outer = dim_range(whole_.shape[d], at.dims[d], mesh_, mesh_.rank());
        at.dims[d] |= over;
        const std::int64_t blocks = over == AxisSet(AxisName::seq) ? own_blocks(at, d) : 1;
        const Shape shape = x.shape();
        Shape in_blocks = with_dim(shape, d, shape[d] / blocks);
        in_blocks.insert(in_blocks.begin() + static_cast<std::ptrdiff_t>(d), blocks);
        if (mesh_.zigzag(over)) {
          const std::int64_t places = mesh_.size(over), place = mesh_.place(over);
          x = blocks == 1 ? slice_zigzag(x, d, places, place)
                          : reshaped(slice_zigzag(reshaped(x, in_blocks), d + 1, places, place),
                                     with_dim(shape, d, shape[d] / places));
          continue;
        }
        Range range{0, shape[d] / blocks};
        if (to.blocks == 1 || !(over & kRowAxes).empty()) {  // places have a meaning
          range = dim_range(whole_.shape[d], at.dims[d], mesh_, mesh_.rank());
          range.first -= outer.first;
        } else {
          for (const AxisName axis : over.list()) range = part_of(range, mesh_.size(axis), mesh_.place(axis));
        }
        if (blocks == 1)
          x = slice_dim(x, d, range);
        else
          x = reshaped(slice_dim(reshaped(x, in_blocks), d + 1, range),
                       with_dim(shape, d, blocks * range.count));
      }
    }
    return x;
  }

  // Gathers a dimension over some of the axes that cut it, which `at` then lacks.
  Tensor gathered_along(Tensor x, Spec& at, std::size_t d, AxisSet over) const {
    const Sizes parts = dim_counts(whole_.shape[d], at.dims[d], over);
    const std::int64_t blocks = over == AxisSet(AxisName::seq) ? own_blocks(at, d) : 1;
    at.dims[d] = at.dims[d] - over;
    const std::int64_t size = dim_range(whole_.shape[d], at.dims[d], mesh_, mesh_.rank()).count;
    const Shape shape = with_dim(x.shape(), d, size);
    const auto [outer, own, inner] = around(x.shape(), d);
    const std::int64_t places = mesh_.size(over);
    const bool zigzag = mesh_.zigzag(over);
    const std::int64_t runs = zigzag ? 2 : 1;  // of a block that a place has
    x = dim_first(x, d);
    if (blocks > 1 && zigzag)  // the first runs of all blocks, then the second
      x = kernels::permute(reshaped(x, {blocks, runs, own / blocks / runs, outer * inner}), {1, 0, 2, 3});
    x = kernels::all_gather(
        x, group(over), parts.times(outer * inner), {size, outer, inner},
        zigzag ? kernels::collective::Order::zigzag : kernels::collective::Order::contiguous);
    if (blocks > 1)
      x = reshaped(kernels::permute(reshaped(x, {places * runs, blocks, own / blocks / runs, outer * inner}),
                                    {1, 0, 2, 3}),
                   {size, outer, inner});
    return dim_back(x, d, shape);
  }

  const TensorType& whole_;
  const Topology& mesh_;
  const ScatterSum& scatter_sum_;
};

}  // namespace

Tensor convert(Tensor x, const TensorType& whole, const Spec& from, const Spec& to, const Topology& mesh,
               const ScatterSum& scatter_sum) {
  return Conversion(whole, mesh, scatter_sum).run(x, from, to);
}

Tensor broadcast(Tensor x, AxisSet axes, const Topology& mesh) {
  std::vector<AxisSet> steps;
  if (mesh.size(axes) <= kSentToAtMost)
    steps.push_back(axes);
  else
    for (const AxisName axis : axes.list()) steps.emplace_back(axis);
  for (const AxisSet over : steps) x = copy_of(x, over, mesh, 0, x.shape());
  return x;
}

bool can_gather_to_owner(const TensorType& whole, const Topology& mesh) {
  const AxisSet all = axes_of_values(mesh);
  return !fsdp_is_within(all) || whole.elements() % mesh.size(all) == 0;
}

Tensor reshaped(Tensor x, const Shape& shape) { return x.shape() == shape ? x : kernels::reshape(x, shape); }

Tensor slice_dim(Tensor x, std::size_t d, Range range) {
  const Shape shape = x.shape();
  if (range.first == 0 && range.count == shape[d]) return x;
  const auto [outer, size, inner] = around(shape, d);
  const bool equal = size % range.count == 0 && range.first % range.count == 0;
  if (equal && (outer == 1 || !hal::is_float(x.dtype()))) {
    const Tensor first = dim_first(x, d);
    const Tensor part =
        kernels::split(first, range.count).at(static_cast<std::size_t>(range.first / range.count));
    return dim_back(part, d, with_dim(shape, d, range.count));
  }
  const Tensor rows =
      kernels::slice_features(reshaped(x, {outer, size * inner}), range.first * inner, range.count * inner);
  return reshaped(rows, with_dim(shape, d, range.count));
}

Tensor pad_dim(Tensor x, std::size_t d, Range range, std::int64_t size) {
  const Shape shape = x.shape();
  const auto [outer, own, inner] = around(shape, d);
  Tensor rows = reshaped(x, {outer, own * inner});
  const auto zeros = [&, rows_of = outer, of_place = inner](std::int64_t count) {
    return kernels::constant(*x.builder, 0.0, {rows_of, count * of_place}, x.dtype());
  };
  if (range.first > 0) rows = kernels::concat(zeros(range.first), rows);
  if (const std::int64_t behind = size - range.first - range.count; behind > 0)
    rows = kernels::concat(rows, zeros(behind));
  return reshaped(rows, with_dim(shape, d, size));
}

}  // namespace meshloom::trainer
