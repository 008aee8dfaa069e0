#include "trainer/mesh/topology.h"

#include <algorithm>
#include <array>
#include <limits>

#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::trainer {
namespace {

constexpr std::array<std::string_view, kAxes> kNames{"islands", "pipeline", "data", "expert",
                                                     "fsdp",    "seq",      "model"};

std::size_t index(AxisName axis) { return static_cast<std::size_t>(axis); }

AxisName axis_from_string(std::string_view name, const std::string& where) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<AxisName>(i);
  const std::vector<std::string> known(kNames.begin(), kNames.end());
  throw hal::Error(where, "must be one of " + hal::join(known) + hal::suggestion(name, known));
}

}  // namespace

std::string_view to_string(AxisName axis) { return kNames.at(index(axis)); }

std::vector<AxisName> AxisSet::list() const {
  static constexpr std::array<AxisName, kAxes> kOrder{AxisName::islands, AxisName::pipeline, AxisName::data,
                                                      AxisName::fsdp,    AxisName::expert,   AxisName::seq,
                                                      AxisName::model};
  std::vector<AxisName> axes;
  for (const AxisName axis : kOrder)
    if (has(axis)) axes.push_back(axis);
  return axes;
}

AxisSet in_front(AxisSet axes, AxisName of) {
  AxisSet found;
  for (const AxisName axis : axes.list())
    if (axis < of) found |= axis;
  return found;
}

std::string to_string(AxisSet axes) {
  std::string text;
  for (const AxisName axis : axes.list()) text += (text.empty() ? "" : ",") + std::string(to_string(axis));
  return text;
}

AxisSet axes_from_string(std::string_view names) {
  AxisSet axes;
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    axes |=
        axis_from_string(names.substr(0, comma), "mesh axis '" + std::string(names.substr(0, comma)) + "'");
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return axes;
}

std::string_view to_string(SequenceOrder order) {
  return order == SequenceOrder::zigzag ? "zigzag" : "contiguous";
}

SequenceOrder sequence_order_from_string(std::string_view name) {
  for (const SequenceOrder order : {SequenceOrder::contiguous, SequenceOrder::zigzag})
    if (name == to_string(order)) return order;
  throw hal::Error("mesh.sequence_order", "must be contiguous or zigzag", "'" + std::string(name) + "'");
}

Range part_of(Range range, std::int64_t places, std::int64_t place) {
  // Not count * place / places, whose product might overflow.
  const std::int64_t whole = range.count / places, rest = range.count % places;
  const auto begin = [&](std::int64_t at) { return whole * at + rest * at / places; };
  return {range.first + begin(place), begin(place + 1) - begin(place)};
}

Topology::Topology(const std::vector<MeshAxis>& axes, int rank) : rank_(rank) {
  std::int64_t ranks = 1;
  AxisSet seen;
  for (const MeshAxis& given : axes) {
    const std::string where = "mesh axis '" + given.name + "'";
    const AxisName axis = axis_from_string(given.name, where);
    if (seen.has(axis)) throw hal::Error(where, "must be given once");
    seen |= axis;
    if (given.size < 1) throw hal::Error(where, "must have a size of at least 1", std::to_string(given.size));
    sizes_[index(axis)] = given.size;
    if (__builtin_mul_overflow(ranks, given.size, &ranks) || ranks > std::numeric_limits<int>::max())
      throw hal::Error("mesh", "must have fewer than 2^31 ranks");
  }
  if (rank < 0 || rank >= ranks)
    throw hal::Error("mesh " + text(), "the rank must be one of " + std::to_string(ranks),
                     std::to_string(rank));
}

Topology Topology::with_shares(std::vector<std::int64_t> shares) const {
  if (!shares.empty() && static_cast<std::int64_t>(shares.size()) != size(kRowAxes))
    throw hal::Error("mesh " + text(),
                     "there must be a share of the rows for each of its " + std::to_string(size(kRowAxes)) +
                         " places over " + to_string(kRowAxes),
                     std::to_string(shares.size()));
  for (const std::int64_t share : shares)
    if (share < 1)
      throw hal::Error("mesh " + text(), "shares of rows must be at least 1", std::to_string(share));
  Topology with = *this;
  with.shares_ = std::move(shares);
  return with;
}

Topology Topology::with_order(SequenceOrder order) const {
  Topology with = *this;
  with.order_ = order;
  return with;
}

AxisSet Topology::all() const {
  AxisSet axes;
  for (int i = 0; i < kAxes; ++i)
    if (sizes_[static_cast<std::size_t>(i)] > 1) axes |= static_cast<AxisName>(i);
  return axes;
}

int Topology::size(AxisSet axes) const {
  std::int64_t size = 1;
  for (const AxisName axis : axes.list()) size *= sizes_[index(axis)];
  return static_cast<int>(size);
}

std::int64_t Topology::stride(AxisName axis) const {
  std::int64_t inner = 1;
  for (std::size_t i = index(axis) + 1; i < sizes_.size(); ++i) inner *= sizes_[i];
  return inner;
}

int Topology::coordinate(int rank, AxisName axis) const {
  return static_cast<int>(rank / stride(axis) % sizes_[index(axis)]);
}

int Topology::place_of(int rank, AxisSet axes) const {
  std::int64_t place = 0;
  for (const AxisName axis : axes.list()) place = place * sizes_[index(axis)] + coordinate(rank, axis);
  return static_cast<int>(place);
}

std::vector<int> Topology::group(AxisSet axes) const {
  int first = rank_;
  for (const AxisName axis : axes.list()) first -= coordinate(rank_, axis) * static_cast<int>(stride(axis));
  std::vector<int> group{first};
  for (const AxisName axis : axes.list()) {
    std::vector<int> next;
    for (const int rank : group)
      for (std::int64_t i = 0; i < sizes_[index(axis)]; ++i)
        next.push_back(rank + static_cast<int>(i * stride(axis)));
    group = std::move(next);
  }
  return group;
}

std::string Topology::text() const {
  std::string text;
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    if (sizes_[i] > 1)
      text += (text.empty() ? "" : ",") + std::string(kNames.at(i)) + "=" + std::to_string(sizes_[i]);
  return text.empty() ? "1 rank" : text;
}

}  // namespace meshloom::trainer
