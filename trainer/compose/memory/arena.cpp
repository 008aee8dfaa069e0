#include "trainer/compose/memory/arena.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "hal/error.h"
#include "hal/math.h"

namespace meshloom::trainer {
namespace {

struct Placed {
  std::int64_t begin, end;
  int first, last;
};

// One block that ranges are placed into; `placed` is sorted by offset.
class Shelf {
 public:
  explicit Shelf(std::int64_t capacity) : capacity_(capacity) {}

  struct Spot {
    std::int64_t offset = -1;  // -1 = no room
    std::int64_t waste = 0;    // unused bytes of the gap
    std::int64_t growth = 0;   // bytes by which the block must grow; 0 in a gap
  };

  Spot find(const Lifetime& life, std::int64_t bytes) const {
    Spot best;
    std::int64_t cursor = 0;
    for (const Placed& other : placed_) {
      if (other.first > life.last || life.first > other.last) continue;
      const std::int64_t gap = other.begin - cursor;
      if (gap >= bytes && (best.offset < 0 || gap - bytes < best.waste)) best = {cursor, gap - bytes, 0};
      cursor = std::max(cursor, other.end);
    }
    if (best.offset < 0 && cursor + bytes <= capacity_)
      best = {cursor, 0, std::max<std::int64_t>(0, cursor + bytes - end_)};
    return best;
  }

  void put(const Lifetime& life, std::int64_t offset, std::int64_t bytes) {
    const Placed placed{offset, offset + bytes, life.first, life.last};
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), placed,
                                    [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                   placed);
    end_ = std::max(end_, placed.end);
  }

  std::int64_t end() const { return end_; }

 private:
  std::int64_t capacity_, end_ = 0;
  std::vector<Placed> placed_;
};

ArenaLayout pack_in_order(const std::vector<Lifetime>& lifetimes, const std::vector<std::size_t>& order,
                          std::int64_t alignment, std::int64_t capacity) {
  ArenaLayout layout;
  layout.places.resize(lifetimes.size());
  std::vector<Shelf> shelves;
  for (std::size_t i : order) {
    const Lifetime& life = lifetimes[i];
    const std::int64_t bytes = hal::round_up(life.bytes, alignment);
    int chosen = -1;
    Shelf::Spot best;
    for (std::size_t s = 0; s < shelves.size(); ++s) {
      const Shelf::Spot spot = shelves[s].find(life, bytes);
      if (spot.offset < 0) continue;
      if (chosen < 0 || spot.growth < best.growth ||
          (spot.growth == best.growth && spot.waste < best.waste)) {
        best = spot;
        chosen = static_cast<int>(s);
      }
    }
    if (chosen < 0) {
      chosen = static_cast<int>(shelves.size());
      shelves.emplace_back(capacity);
      best = {0, 0, bytes};
    }
    shelves[static_cast<std::size_t>(chosen)].put(life, best.offset, bytes);
    layout.places[i] = {chosen, best.offset, life.bytes};
  }
  for (const Shelf& shelf : shelves) layout.block_bytes.push_back(shelf.end());
  return layout;
}

}  // namespace

std::int64_t ArenaLayout::total() const {
  return std::accumulate(block_bytes.begin(), block_bytes.end(), std::int64_t{0});
}

std::int64_t min_bytes(const std::vector<Lifetime>& lifetimes, std::int64_t alignment) {
  std::map<int, std::int64_t> change;  // at the start of a call
  for (const Lifetime& life : lifetimes) {
    change[life.first] += hal::round_up(life.bytes, alignment);
    change[life.last + 1] -= hal::round_up(life.bytes, alignment);
  }
  std::int64_t now = 0, peak = 0;
  for (const auto& [call, bytes] : change) peak = std::max(peak, now += bytes);
  return peak;
}

ArenaLayout plan_arena(const std::vector<Lifetime>& lifetimes, std::int64_t alignment,
                       std::int64_t max_block_bytes) {
  const std::int64_t capacity = max_block_bytes / alignment * alignment;
  for (const Lifetime& life : lifetimes)
    if (life.bytes <= 0 || hal::round_up(life.bytes, alignment) > capacity)
      throw hal::Error("memory plan",
                       "a range must fit into one block of " + std::to_string(capacity) + " bytes",
                       std::to_string(life.bytes));
  std::vector<std::size_t> by_size(lifetimes.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::vector<std::size_t> by_area = by_size;
  const auto area = [&](std::size_t i) {
    return static_cast<double>(lifetimes[i].bytes) * (1.0 + lifetimes[i].last - lifetimes[i].first);
  };
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
    if (lifetimes[a].bytes != lifetimes[b].bytes) return lifetimes[a].bytes > lifetimes[b].bytes;
    return lifetimes[a].first < lifetimes[b].first;
  });
  ArenaLayout best = pack_in_order(lifetimes, by_size, alignment, capacity);
  if (best.total() > min_bytes(lifetimes, alignment)) {
    std::stable_sort(by_area.begin(), by_area.end(),
                     [&](std::size_t a, std::size_t b) { return area(a) > area(b); });
    ArenaLayout other = pack_in_order(lifetimes, by_area, alignment, capacity);
    if (other.total() < best.total()) best = std::move(other);
  }
  return best;
}

void check_arena(const std::vector<Lifetime>& lifetimes, const ArenaLayout& layout) {
  // Sorted by block and start, so that few pairs need to be compared.
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return lifetimes[a].first < lifetimes[b].first; });
  std::vector<std::size_t> alive;
  for (std::size_t i : order) {
    const Placement& place = layout.places.at(i);
    if (place.block < 0 || place.offset < 0 || place.bytes < lifetimes[i].bytes ||
        place.offset + place.bytes > layout.block_bytes.at(static_cast<std::size_t>(place.block)))
      throw hal::Error("memory plan", "every range must lie within its block", "range " + std::to_string(i));
    alive.erase(std::remove_if(alive.begin(), alive.end(),
                               [&](std::size_t j) { return lifetimes[j].last < lifetimes[i].first; }),
                alive.end());
    for (std::size_t j : alive) {
      const Placement& other = layout.places[j];
      if (other.block == place.block && other.offset < place.offset + place.bytes &&
          place.offset < other.offset + other.bytes)
        throw hal::Error("memory plan", "ranges that live at the same time must not overlap",
                         "ranges " + std::to_string(j) + " and " + std::to_string(i));
    }
    alive.push_back(i);
  }
}

}  // namespace meshloom::trainer
