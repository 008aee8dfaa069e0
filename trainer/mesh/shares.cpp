#include "trainer/mesh/shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hal/error.h"

namespace meshloom::trainer {

std::vector<std::int64_t> deal_rows(std::int64_t rows, std::span<const RankSpeed> ranks) {
  const auto count = static_cast<std::int64_t>(ranks.size());
  if (rows < count || count == 0)
    throw hal::Error("shares", fmt::format("{} ranks need at least a row each", count),
                     fmt::format("{}", rows));
  std::vector<std::int64_t> most(ranks.size());
  std::int64_t room = 0;  // at most `rows` of each rank, so that the sum cannot overflow where counts do not
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!(ranks[i].seconds > 0) || !std::isfinite(ranks[i].seconds))
      throw hal::Error("shares", fmt::format("a row of rank {} must take a time above 0", i),
                       fmt::format("{} s", ranks[i].seconds));
    most[i] = ranks[i].max_rows > 0 ? std::min(ranks[i].max_rows, rows) : rows;
    room = std::min(rows, room + most[i]);
  }
  if (room < rows)
    throw hal::Error("shares", fmt::format("the memory of all ranks must have room for {} rows", rows),
                     fmt::format("{}", room));
  // What one rank may not take is dealt among the others, until nobody has too much or too little.
  std::vector<std::int64_t> shares(ranks.size(), 0);
  std::vector<std::size_t> open(ranks.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  std::int64_t left = rows;
  while (!open.empty()) {
    double speed = 0;
    for (const std::size_t i : open) speed += 1 / ranks[i].seconds;
    const auto ideal = [&](std::size_t i) { return static_cast<double>(left) / ranks[i].seconds / speed; };
    // Those that are bound to their most or to one row first; the sums of both sides decide which side is settled.
    double above = 0, below = 0;
    for (const std::size_t i : open) {
      above += std::max(0.0, ideal(i) - static_cast<double>(most[i]));
      below += std::max(0.0, 1 - ideal(i));
    }
    const bool settle_most = above >= below;
    std::vector<std::size_t> free;
    std::int64_t settled = 0;
    for (const std::size_t i : open) {
      if (above > 0 && settle_most && ideal(i) > static_cast<double>(most[i]))
        settled += shares[i] = most[i];
      else if (below > 0 && !settle_most && ideal(i) < 1)
        settled += shares[i] = 1;
      else
        free.push_back(i);
    }
    if (free.size() < open.size()) {
      open = std::move(free);
      left -= settled;
      continue;
    }
    std::int64_t over = left;
    for (const std::size_t i : open) over -= shares[i] = static_cast<std::int64_t>(ideal(i));
    std::stable_sort(open.begin(), open.end(), [&](std::size_t a, std::size_t b) {
      return ideal(a) - std::floor(ideal(a)) > ideal(b) - std::floor(ideal(b));
    });
    // Rounding may leave more than one row for each, where some are at their most.
    while (over > 0)
      for (const std::size_t i : open)
        if (over > 0 && shares[i] < most[i]) {
          ++shares[i];
          --over;
        }
    break;
  }
  return shares;
}

void check_shares(std::span<const std::int64_t> shares, std::int64_t ranks, std::int64_t rows,
                  const std::string& where) {
  const std::string found = fmt::format("[{}]", fmt::join(shares, ", "));
  if (static_cast<std::int64_t>(shares.size()) != ranks)
    throw hal::Error(where, fmt::format("must have the rows of each of {} ranks", ranks), found);
  std::int64_t left = rows;
  for (const std::int64_t share : shares) {
    if (share < 1) throw hal::Error(where, "every rank must have at least one row", found);
    left -= std::min(share, left + 1);  // below 0 where there are too many
  }
  if (left != 0)
    throw hal::Error(where, fmt::format("must sum to the {} rows of a micro-batch", rows), found);
}

}  // namespace meshloom::trainer
