// What tests of ranks share: bodies that run on every rank, over any transport.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "hal/transport/transport.h"
#include "kernels/collective/moves.h"
#include "kernels/collective/reference.h"

namespace meshloom::tests {

using kernels::collective::Bytes;
using kernels::collective::Move;

// One collective of all ranks with random sizes, of which many are 0: its inputs, lists and results of every rank.
// Equal seeds give equal ones on every rank.
struct RandomCollective {
  std::string op;
  std::vector<Bytes> inputs, outputs;
  std::vector<std::vector<Move>> lists;
};
RandomCollective random_collective(std::uint64_t seed, int ranks, std::int64_t max_bytes);

// Carries out `rounds` random collectives over the transport, and compares each with its reference. "" = all equal.
// With `traffic`, adds the bytes that the lists move: sent[to], received[from].
struct ExpectedTraffic {
  std::vector<std::int64_t> sent, received, sent_messages, received_messages;
};
std::string run_random_collectives(hal::Transport& transport, std::uint64_t seed, int rounds,
                                   std::int64_t max_bytes, ExpectedTraffic* traffic = nullptr);

}  // namespace meshloom::tests
