#include "trainer/planner/move_times.h"

#include <algorithm>
#include <numeric>

#include "hal/math.h"
#include "hal/transport/transport.h"

namespace meshloom::trainer {

LevelMoves MoveTimes::timed(std::size_t level, int peers, std::int64_t messages, std::int64_t bytes) const {
  const hal::NetworkLevel& of = network_.levels.at(level);
  LevelMoves moves{level, peers, bytes, messages, of.seconds(messages, bytes), 0};
  moves.port_seconds = std::max(0.0, moves.seconds - of.alpha);
  return moves;
}

const std::vector<int>& MoveTimes::peers_by_level(AxisSet axes) const {
  const auto [found, fresh] = peers_.try_emplace(axes, network_.levels.size(), 0);
  if (fresh)
    for (const int rank : mesh_.group(axes))
      if (rank != mesh_.rank()) ++found->second[network_.level_between(mesh_.rank(), rank)];
  return found->second;
}

std::vector<LevelMoves> MoveTimes::exchange(AxisSet axes, const MovedBytes& moved) const {
  const std::vector<int>& peers = peers_by_level(axes);
  const std::int64_t all = std::max(1, std::accumulate(peers.begin(), peers.end(), 0));
  const std::int64_t bytes = std::max(moved.out, moved.in),
                     messages = std::max(moved.messages_out, moved.messages_in);
  std::vector<LevelMoves> parts;
  for (std::size_t level = 0; level < peers.size(); ++level)
    if (const std::int64_t here = peers[level]; here > 0 && messages > 0)
      parts.push_back(timed(level, peers[level], hal::ceil_div(messages * here, all),
                            static_cast<std::int64_t>(static_cast<double>(bytes) * static_cast<double>(here) /
                                                      static_cast<double>(all))));
  return parts;
}

LevelMoves MoveTimes::transfer(int from, int to, std::int64_t bytes) const {
  return timed(network_.level_between(from, to), 1, hal::ceil_div(bytes, hal::kMaxMessageBytes), bytes);
}

}  // namespace meshloom::trainer
