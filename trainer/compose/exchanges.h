// What the collectives of a program move between ranks, as the messages that are sent.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/collective/moves.h"
#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// A range of a value, and where it lies in memory of the host that is staged for moves.
struct StagedRange {
  kernels::ValueId value = kernels::kNoValue;
  std::int64_t offset = 0, bytes = 0, staged = 0;
};

// What one rank moves.
struct MovedBytes {
  std::int64_t out = 0, in = 0;                    // bytes to and from other ranks
  std::int64_t messages_out = 0, messages_in = 0;  // of at most hal::kMaxMessageBytes
  MovedBytes& operator+=(const MovedBytes& other);
  bool operator==(const MovedBytes&) const = default;
};

// Neighbouring collectives that start together, over the same ranks: one message to each peer, and one from each. What is sent is
// copied to the host when they start, and what came is copied back where they end.
struct Exchange {
  AxisSet axes;          // in which the ranks of the group differ
  int starts = 0;        // in front of this call
  int call = 0;          // the first of the collectives, where they end
  int calls = 1;         // as many follow one another
  std::string op, path;  // of the first
  MovedBytes moved;      // what it moves between ranks
  // What is staged of it; where two peers get the same, it is there once.
  std::int64_t sent_bytes = 0, received_bytes = 0;
  std::int64_t staged = 0;  // where both lie, one behind the other, in the plan's staging
};

// What a rank does to carry out an exchange. There are moves and ranges for each peer, so that a plan does not have them.
struct ExchangeLists {
  // Of the staged bytes: tensor kInput is what is sent, kOutput what is received. Places are those of the group of `axes`.
  std::vector<kernels::collective::Move> moves;
  std::vector<StagedRange> reads, writes;  // StagedRange::staged counts from the begin of what is sent
};
// Throws Error where they are not what the exchange was planned with.
ExchangeLists lists_of(const Exchange& exchange, const kernels::Program& program,
                       const kernels::Catalog& catalog, const Topology& mesh);

// The exchanges of a program, in the order in which they end, placed in as little staging as they need.
std::vector<Exchange> exchanges_of(const kernels::Program& program, const kernels::Catalog& catalog,
                                   const Topology& mesh);
// The staging that they need.
std::int64_t staging_bytes(const std::vector<Exchange>& exchanges);

// By the axes in which the ranks of a group differ: "fsdp", "data,fsdp".
std::map<std::string, MovedBytes> moved_bytes(const std::vector<Exchange>& exchanges);

}  // namespace meshloom::trainer
