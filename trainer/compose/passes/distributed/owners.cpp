#include "trainer/compose/passes/distributed/owners.h"

#include <algorithm>
#include <limits>

#include "trainer/compose/passes/distributed/convert_spec.h"

namespace meshloom::trainer {
namespace {

constexpr int kMaxRanks = 256;

}  // namespace

Owners::Owners(AxisSet axes, const Topology& mesh) : axes_(axes), mesh_(mesh) {
  if (mesh.size(axes) > kMaxRanks) return;
  const std::vector<int> ranks = mesh.group(axes);
  for (const int rank : ranks)
    speeds_.push_back(mesh.shares().empty() ? 1.0
                                            : static_cast<double>(mesh.shares().at(
                                                  static_cast<std::size_t>(mesh.place_of(rank, kRowAxes)))));
  work_.resize(ranks.size(), 0);
}

bool Owners::can_hold(const kernels::TensorType& type) const {
  const std::int64_t places = mesh_.size(axes_), n = type.elements();
  return type.dtype == kernels::DType::f32 && places > 1 && places <= kMaxRanks && n >= places &&
         can_gather_to_owner(type, mesh_);
}

int Owners::of(const std::string& path, const kernels::TensorType& type) {
  if (const auto found = places_.find(path); found != places_.end()) return found->second;
  // What counts are products of a matrix with itself, as in Muon's iteration.
  std::int64_t shorter = 1;
  if (const std::size_t rank = type.shape.size(); rank > 1)
    shorter = std::min(type.shape[rank - 1], type.shape[rank - 2]);
  const double work = static_cast<double>(type.elements()) * static_cast<double>(shorter);
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t place = 0; place < work_.size(); ++place)
    if (const double load = (work_[place] + work) / speeds_[place]; load < least) {
      least = load;
      best = place;
    }
  work_[best] += work;
  return places_[path] = static_cast<int>(best);
}

}  // namespace meshloom::trainer
