#include "kernels/collective/moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "hal/error.h"

namespace meshloom::kernels::collective {
namespace {

std::int64_t sum(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

void require(const char* op, std::span<const std::int64_t> sizes, std::size_t wanted, int n, int place) {
  if (n < 1 || place < 0 || place >= n)
    throw Error(op, fmt::format("the place must be in a group of {}", n), std::to_string(place));
  if (sizes.size() != wanted)
    throw Error(op, fmt::format("must have {} sizes", wanted), std::to_string(sizes.size()));
  for (const std::int64_t size : sizes)
    if (size < 0) throw Error(op, "sizes must not be negative", std::to_string(size));
}

void add(std::vector<Move>& moves, const Move& move) {
  if (move.bytes > 0) moves.push_back(move);
}

// The place at a distance, which may be negative.
int at_distance(int place, int distance, int n) { return ((place + distance) % n + n) % n; }

// Moves of the runs of peers, in which one's own place stands alone; `offset` and `bytes` are those of the first peer of a run,
// and each peer's stand `step` sizes behind those of the one before.
template <typename Offset>
void add_runs(std::vector<Move>& moves, const Sizes& sizes, int place, bool out, int tensor, int step,
              const Offset& offset) {
  std::int64_t first = 0;
  for (const Sizes::Run& run : sizes.runs()) {
    const std::int64_t end = first + run.count;
    const auto some = [&](std::int64_t from, std::int64_t to) {
      from = std::max(from, first);
      to = std::min(to, end);
      if (from >= to || run.size == 0) return;
      Move move{static_cast<int>(from), out, tensor, offset(from), run.size};
      move.count = static_cast<int>(to - from);
      move.step = move.count > 1 ? step * run.size : 0;
      moves.push_back(move);
    };
    some(first, place);
    some(place, place + 1);
    some(place + 1, end);
    first = end;
  }
}

void require_place(const char* op, const Sizes& sizes, int place) {
  if (place < 0 || place >= sizes.places())
    throw Error(op, fmt::format("the place must be in a group of {}", sizes.places()), std::to_string(place));
}

// The halves of parts in zigzag, of n places that have equally much.
struct Halves {
  Halves(const char* op, const Sizes& sizes) : places(sizes.places()), bytes(sizes.at(0) / 2) {
    if (sizes.runs().size() != 1 || sizes.at(0) % 2 != 0)
      throw Error(op, "places in zigzag must have equal and even sizes",
                  fmt::format("{} of place 0, {} of all {}", sizes.at(0), sizes.total(), places));
    all = Sizes::equal(places, bytes);
  }
  std::int64_t offset(int half, std::int64_t place) const {
    return (half == 0 ? place : 2 * places - 1 - place) * bytes;
  }
  static int step(int half) { return half == 0 ? 1 : -1; }

  std::int64_t places, bytes;
  Sizes all;
};

}  // namespace

Sizes::Sizes(const std::vector<std::int64_t>& of_places) {
  for (const std::int64_t size : of_places) add(1, size);
}

Sizes Sizes::equal(std::int64_t places, std::int64_t size) {
  Sizes sizes;
  sizes.add(places, size);
  return sizes;
}

Sizes Sizes::from_pairs(const std::vector<std::int64_t>& pairs) {
  Sizes sizes;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (i + 1 == pairs.size() || pairs[i] < 1 || pairs[i + 1] < 0)
      throw Error("sizes of a collective",
                  "must be pairs of a count of places, at least 1, and a size, at least 0",
                  fmt::format("{} numbers, of which number {} is {}", pairs.size(), i, pairs[i]));
    sizes.add(pairs[i], pairs[i + 1]);
  }
  return sizes;
}

std::vector<std::int64_t> Sizes::pairs() const {
  std::vector<std::int64_t> pairs;
  for (const Run& run : runs_) pairs.insert(pairs.end(), {run.count, run.size});
  return pairs;
}

std::vector<std::int64_t> Sizes::list() const {
  std::vector<std::int64_t> list;
  for (const Run& run : runs_) list.insert(list.end(), static_cast<std::size_t>(run.count), run.size);
  return list;
}

void Sizes::add(std::int64_t count, std::int64_t size) {
  if (count == 0) return;
  if (!runs_.empty() && runs_.back().size == size)
    runs_.back().count += count;
  else
    runs_.push_back({count, size});
}

std::int64_t Sizes::places() const {
  std::int64_t places = 0;
  for (const Run& run : runs_) places += run.count;
  return places;
}

std::int64_t Sizes::total() const { return before(places()); }

std::int64_t Sizes::at(std::int64_t place) const {
  std::int64_t first = 0;
  for (const Run& run : runs_) {
    if (place >= first && place < first + run.count) return run.size;
    first += run.count;
  }
  throw Error("sizes of a collective", fmt::format("the place must be one of {}", first),
              std::to_string(place));
}

std::int64_t Sizes::before(std::int64_t place) const {
  std::int64_t first = 0, sum = 0;
  for (const Run& run : runs_) {
    sum += std::clamp<std::int64_t>(place - first, 0, run.count) * run.size;
    first += run.count;
  }
  return sum;
}

Sizes Sizes::times(std::int64_t factor) const {
  Sizes sizes = *this;
  for (Run& run : sizes.runs_) run.size *= factor;
  return sizes;
}

std::vector<Move> gather_runs(const Sizes& sizes, int place, Order order) {
  require_place("all_gather", sizes, place);
  std::vector<Move> moves;
  if (order == Order::zigzag) {
    const Halves halves("all_gather", sizes);
    for (const int half : {0, 1})
      add_runs(moves, halves.all, place, true, kInput, 0, [&](std::int64_t) { return half * halves.bytes; });
    for (const int half : {0, 1})
      add_runs(moves, halves.all, place, false, kOutput, halves.step(half),
               [&](std::int64_t from) { return halves.offset(half, from); });
    return moves;
  }
  if (const std::int64_t own = sizes.at(place); own > 0) {
    Sizes alike;
    alike.add(sizes.places(), own);
    add_runs(moves, alike, place, true, kInput, 0, [](std::int64_t) { return std::int64_t{0}; });
  }
  add_runs(moves, sizes, place, false, kOutput, 1, [&](std::int64_t from) { return sizes.before(from); });
  return moves;
}

std::vector<Move> scatter_runs(const Sizes& sizes, int place, Order order) {
  require_place("all_to_all", sizes, place);
  std::vector<Move> moves;
  if (order == Order::zigzag) {
    const Halves halves("all_to_all", sizes);
    for (const int half : {0, 1})
      add_runs(moves, halves.all, place, true, kInput, halves.step(half),
               [&](std::int64_t to) { return halves.offset(half, to); });
    for (const int half : {0, 1})
      add_runs(moves, halves.all, place, false, kOutput, 2,
               [&](std::int64_t from) { return (2 * from + half) * halves.bytes; });
    return moves;
  }
  add_runs(moves, sizes, place, true, kInput, 1, [&](std::int64_t to) { return sizes.before(to); });
  const std::int64_t own = sizes.at(place);
  add_runs(moves, Sizes::equal(sizes.places(), own), place, false, kOutput, 1,
           [&](std::int64_t from) { return from * own; });
  return moves;
}

std::vector<Move> gather_to(const Sizes& sizes, int root, int place) {
  require_place("gather_to", sizes, place);
  require_place("gather_to", sizes, root);
  std::vector<Move> moves;
  add(moves, {root, true, kInput, 0, sizes.at(place)});
  if (place == root)
    add_runs(moves, sizes, place, false, kOutput, 1, [&](std::int64_t from) { return sizes.before(from); });
  return moves;
}

std::vector<Move> scatter_from(const Sizes& sizes, int root, int place) {
  require_place("scatter_from", sizes, place);
  require_place("scatter_from", sizes, root);
  std::vector<Move> moves;
  if (place == root)
    add_runs(moves, sizes, place, true, kInput, 1, [&](std::int64_t to) { return sizes.before(to); });
  add(moves, {root, false, kOutput, 0, sizes.at(place)});
  return moves;
}

std::vector<Move> expanded(const std::vector<Move>& moves, int n, int place) {
  std::vector<Move> all;
  for (const Move& move : moves)
    for (int i = 0; i < move.count; ++i)
      all.push_back({move.peer + i, move.out, move.tensor, move.offset + i * move.step, move.bytes});
  std::stable_sort(all.begin(), all.end(), [&](const Move& a, const Move& b) {
    const auto distance = [&](const Move& move) {
      return at_distance(move.out ? move.peer : place, -(move.out ? place : move.peer), n);
    };
    const int left = distance(a), right = distance(b);
    return left != right ? left < right : a.out > b.out;
  });
  return all;
}

std::vector<Move> all_gather(std::span<const std::int64_t> sizes, int place) {
  const int n = static_cast<int>(sizes.size());
  require("all_gather", sizes, sizes.size(), n, place);
  std::vector<Move> moves;
  for (int distance = 0; distance < n; ++distance) {
    const int to = at_distance(place, distance, n), from = at_distance(place, -distance, n);
    add(moves, {to, true, kInput, 0, sizes[static_cast<std::size_t>(place)]});
    add(moves, {from, false, kOutput, sum(sizes.first(static_cast<std::size_t>(from))),
                sizes[static_cast<std::size_t>(from)]});
  }
  return moves;
}

std::vector<Move> all_to_all(std::span<const std::int64_t> sizes, int n, int place) {
  require("all_to_all", sizes, static_cast<std::size_t>(n) * static_cast<std::size_t>(n), n, place);
  const auto bytes = [&](int from, int to) { return sizes[static_cast<std::size_t>(from * n + to)]; };
  std::vector<Move> moves;
  for (int distance = 0; distance < n; ++distance) {
    const int to = at_distance(place, distance, n), from = at_distance(place, -distance, n);
    std::int64_t out = 0, in = 0;
    for (int other = 0; other < to; ++other) out += bytes(place, other);
    for (int other = 0; other < from; ++other) in += bytes(other, place);
    add(moves, {to, true, kInput, out, bytes(place, to)});
    add(moves, {from, false, kOutput, in, bytes(from, place)});
  }
  return moves;
}

std::vector<Move> shift(std::span<const std::int64_t> sizes, int by, int place) {
  const int n = static_cast<int>(sizes.size());
  require("shift", sizes, sizes.size(), n, place);
  const int to = at_distance(place, by % n, n), from = at_distance(place, -(by % n), n);
  std::vector<Move> moves;
  add(moves, {to, true, kInput, 0, sizes[static_cast<std::size_t>(place)]});
  add(moves, {from, false, kOutput, 0, sizes[static_cast<std::size_t>(from)]});
  return moves;
}

std::int64_t tensor_bytes(const std::vector<Move>& moves, int tensor) {
  std::int64_t bytes = 0;
  for (const Move& move : moves)
    if (move.tensor == tensor) bytes = std::max(bytes, move.offset + move.bytes);
  return bytes;
}

std::int64_t moved_bytes(const std::vector<Move>& moves, int place, bool out) {
  std::int64_t bytes = 0;
  for (const Move& move : moves)
    if (move.peer != place && move.out == out) bytes += move.bytes;
  return bytes;
}

std::string mismatch(std::span<const std::vector<Move>> lists, std::span<const std::int64_t> output_bytes) {
  const int n = static_cast<int>(lists.size());
  const auto between = [&](int owner, int peer, bool out) {
    std::vector<std::int64_t> bytes;
    for (const Move& move : lists[static_cast<std::size_t>(owner)])
      if (move.peer == peer && move.out == out) bytes.push_back(move.bytes);
    return bytes;
  };
  for (int from = 0; from < n; ++from)
    for (const Move& move : lists[static_cast<std::size_t>(from)])
      if (move.peer < 0 || move.peer >= n)
        return fmt::format("place {} has a move of place {} of {}", from, move.peer, n);
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to) {
      const std::vector<std::int64_t> out = between(from, to, true), in = between(to, from, false);
      if (out.size() != in.size())
        return fmt::format("place {} sends {} messages to place {}, which receives {}", from, out.size(), to,
                           in.size());
      for (std::size_t i = 0; i < out.size(); ++i)
        if (out[i] != in[i])
          return fmt::format("message {} from place {} to place {}: {} bytes are sent, {} received", i, from,
                             to, out[i], in[i]);
    }
  for (int place = 0; place < n; ++place) {
    std::vector<Move> in;
    for (const Move& move : lists[static_cast<std::size_t>(place)])
      if (!move.out) in.push_back(move);
    std::sort(in.begin(), in.end(), [](const Move& a, const Move& b) {
      return a.tensor != b.tensor ? a.tensor < b.tensor : a.offset < b.offset;
    });
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i].offset < 0 || in[i].offset + in[i].bytes > output_bytes[static_cast<std::size_t>(place)])
        return fmt::format("place {} receives bytes [{}, {}) of {}", place, in[i].offset,
                           in[i].offset + in[i].bytes, output_bytes[static_cast<std::size_t>(place)]);
      if (i > 0 && in[i].tensor == in[i - 1].tensor && in[i].offset < in[i - 1].offset + in[i - 1].bytes)
        return fmt::format("place {} receives byte {} twice", place, in[i].offset);
    }
  }
  return "";
}

}  // namespace meshloom::kernels::collective
