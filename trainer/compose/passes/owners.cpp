#include "trainer/compose/passes/owners.h"

#include <algorithm>
#include <limits>

namespace meshloom::trainer {
namespace {

constexpr int kMostRanks = 256;

}  // namespace

Owners::Owners(AxisSet axes, const Topology& mesh) : axes_(axes), mesh_(mesh) {
  if (mesh.size(axes) > kMostRanks) return;
  const std::vector<int> ranks = mesh.group(axes);
  for (const int rank : ranks)
    speeds_.push_back(mesh.shares().empty() ? 1.0
                                            : static_cast<double>(mesh.shares().at(
                                                  static_cast<std::size_t>(mesh.place_of(rank, kRowAxes)))));
  work_.resize(ranks.size(), 0);
}

bool Owners::can_hold(const kernels::TensorType& type) const {
  const std::int64_t places = mesh_.size(axes_), n = type.elements();
  const bool one_order = !axes_.has(AxisName::fsdp) || axes_ == AxisSet(AxisName::fsdp);
  return type.dtype == kernels::DType::f32 && places > 1 && places <= kMostRanks && n >= places &&
         (one_order || n % places == 0);
}

int Owners::of(const std::string& path, const kernels::TensorType& type) {
  if (const auto found = places_.find(path); found != places_.end()) return found->second;
  // Products of a matrix with itself.
  std::int64_t shorter = 1;
  if (const std::size_t rank = type.shape.size(); rank > 1)
    shorter = std::min(type.shape[rank - 1], type.shape[rank - 2]);
  const double work = static_cast<double>(type.elements()) * static_cast<double>(shorter);
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t place = 0; place < work_.size(); ++place)
    if (const double seconds = (work_[place] + work) / speeds_[place]; seconds < least) {
      least = seconds;
      best = place;
    }
  work_[best] += work;
  return places_[path] = static_cast<int>(best);
}

}  // namespace meshloom::trainer
