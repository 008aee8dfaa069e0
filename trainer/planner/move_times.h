// How long moves between the ranks of a mesh take over a network. Ranks are dealt to devices in order, so that the last axes of the
// mesh lie inside of nodes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hal/transport/network.h"
#include "trainer/compose/exchanges.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// What of some moves crosses one level of the network. Moves over several levels go at the same time, each through a port of its own.
struct LevelMoves {
  std::size_t level = 0;
  int peers = 0;
  std::int64_t bytes = 0, messages = 0;  // through the busier direction of the port
  double seconds = 0;
  double port_seconds = 0;  // for which the port is busy: all but the latency
};

class MoveTimes {
 public:
  // Both must outlive it.
  MoveTimes(const hal::Network& network, const Topology& mesh) : network_(network), mesh_(mesh) {}

  // Of an exchange of this rank with all others that differ from it along these axes, equally much with each.
  std::vector<LevelMoves> exchange(AxisSet axes, const MovedBytes& moved) const;
  // Of a message from one rank to another.
  LevelMoves transfer(int from, int to, std::int64_t bytes) const;
  const hal::Network& network() const { return network_; }

 private:
  LevelMoves timed(std::size_t level, int peers, std::int64_t messages, std::int64_t bytes) const;
  const std::vector<int>& peers_by_level(AxisSet axes) const;

  const hal::Network& network_;
  const Topology& mesh_;
  mutable std::map<AxisSet, std::vector<int>> peers_;
};

}  // namespace meshloom::trainer
