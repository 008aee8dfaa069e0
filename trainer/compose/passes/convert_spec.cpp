#include "trainer/compose/passes/convert_spec.h"

#include <utility>

#include "hal/error.h"
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

class Conversion {
 public:
  Conversion(const TensorType& whole, const Topology& mesh)
      : whole_(whole), n_(whole.elements()), mesh_(mesh) {}

  Tensor run(Tensor x, const Spec& from, const Spec& to) const {
    if (from == to) return x;
    if (!to.partial.empty()) return summand(x, from, to);
    if (!from.partial.empty()) {
      if (from.cut() || !from.flat.empty()) fail(from, to);
      // A part of each element for every rank would be less than one element.
      if (n_ < 4 * mesh_.size(from.partial))
        return run(summed(x, from.partial), whole_spec(whole_.rank()), to);
      return run(reduce_scattered(x, from.partial), flat_spec(whole_.rank(), from.partial), to);
    }
    if (from.cut()) return run(uncut(x, from, to), whole_spec(whole_.rank()), to);
    if (!to.flat.empty() || !from.flat.empty()) {
      const AxisSet common = from.flat & to.flat;
      // Ranges over data alone are not those over fsdp and data cut down.
      const bool nested = common.has(AxisName::fsdp) || !(from.flat | to.flat).has(AxisName::fsdp);
      const AxisSet over = nested ? common : AxisSet();
      x = gathered(x, from.flat, over);
      x = sliced(x, over, to.flat);
      if (to.flat.empty()) x = kernels::reshape(x, whole_.shape);
      return to.cut() ? run(x, whole_spec(whole_.rank()), to) : x;
    }
    return cut(x, from, to);
  }

 private:
  [[noreturn]] void fail(const Spec& from, const Spec& to) const {
    throw hal::Error(
        "partition of " + to_string(whole_),
        "a value that is " + to_string(from) + " cannot be brought to " + to_string(to) + " yet");
  }

  kernels::GroupPlace group(AxisSet axes) const { return {to_string(axes), mesh_.place(axes)}; }

  // The counts of the ranges over axes | over of the ranks that differ from this one in `over`.
  std::vector<std::int64_t> counts(AxisSet axes, AxisSet over) const {
    std::vector<std::int64_t> counts;
    for (const int rank : mesh_.group(over)) counts.push_back(flat_range(n_, axes | over, mesh_, rank).count);
    return counts;
  }

  std::int64_t count(AxisSet axes) const { return flat_range(n_, axes, mesh_, mesh_.rank()).count; }

  // From a range over `from` to one over `to`, a subset.
  Tensor gathered(Tensor x, AxisSet from, AxisSet to) const {
    const AxisSet inner = AxisSet(AxisName::fsdp);
    for (const AxisSet over : {from - to - inner, (from - to) & inner}) {
      if (over.empty()) continue;
      from = from - over;
      x = kernels::all_gather(x, group(over), counts(from, over), {count(from)});
    }
    return x;
  }

  Tensor sliced(Tensor x, AxisSet from, AxisSet to) const {
    if (from == to) return x;
    const Range outer = flat_range(n_, from, mesh_, mesh_.rank()),
                own = flat_range(n_, to, mesh_, mesh_.rank());
    x = kernels::slice_features(kernels::reshape(x, {1, outer.count}), own.first - outer.first, own.count);
    return kernels::reshape(x, {own.count});
  }

  Tensor narrowed(Tensor sum) const {
    return sum.dtype() == whole_.dtype ? sum : kernels::cast(sum, whole_.dtype);
  }

  Tensor reduce_scattered(Tensor x, AxisSet axes) const {
    const AxisSet inner = axes & AxisName::fsdp;
    AxisSet done;
    for (const AxisSet over : {inner, axes - inner}) {
      if (over.empty()) continue;
      const std::vector<std::int64_t> parts = counts(done, over);
      std::vector<std::int64_t> sizes;
      for (std::size_t from = 0; from < parts.size(); ++from)
        sizes.insert(sizes.end(), parts.begin(), parts.end());
      done |= over;
      x = kernels::all_to_all(x, group(over), std::move(sizes), {mesh_.size(over), count(done)});
      x = narrowed(kernels::reduce_sum(x, 1));
    }
    return x;
  }

  Tensor summed(Tensor x, AxisSet axes) const {
    const std::int64_t places = mesh_.size(axes);
    const Tensor all = kernels::all_gather(
        x, group(axes), std::vector<std::int64_t>(static_cast<std::size_t>(places), n_), {places, n_});
    return kernels::reshape(narrowed(kernels::reduce_sum(all, 1)), whole_.shape);
  }

  // The first rank has all of the sum, the others nothing.
  Tensor summand(Tensor x, const Spec& from, const Spec& to) const {
    if (to.cut() || !to.flat.empty()) fail(from, to);
    x = run(x, from, whole_spec(whole_.rank()));
    return kernels::scale(x, mesh_.place(to.partial) == 0 ? 1 : 0);
  }

  // The axes that cut the first dimension, if it is the only one.
  AxisSet first_only(const Spec& spec, const Spec& from, const Spec& to) const {
    for (std::size_t d = 1; d < spec.dims.size(); ++d)
      if (!spec.dims[d].empty()) fail(from, to);
    return spec.dims.at(0);
  }

  Tensor uncut(Tensor x, const Spec& from, const Spec& to) const {
    const AxisSet axes = first_only(from, from, to);
    const std::vector<std::int64_t> sizes(static_cast<std::size_t>(mesh_.size(axes)), x.type().elements());
    return kernels::all_gather(x, group(axes), sizes, whole_.shape);
  }

  Tensor cut(Tensor x, const Spec& from, const Spec& to) const {
    const AxisSet axes = first_only(to, from, to);
    const std::int64_t rows = whole_.shape[0] / mesh_.size(axes);
    return kernels::split(x, rows).at(static_cast<std::size_t>(mesh_.place(axes)));
  }

  const TensorType& whole_;
  std::int64_t n_;
  const Topology& mesh_;
};

}  // namespace

Tensor convert(Tensor x, const TensorType& whole, const Spec& from, const Spec& to, const Topology& mesh) {
  return Conversion(whole, mesh).run(x, from, to);
}

}  // namespace meshloom::trainer
