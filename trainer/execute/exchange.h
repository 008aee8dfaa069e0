// Carries out a collective's list of moves over a transport, on memory of the host.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "hal/transport/transport.h"
#include "kernels/collective/moves.h"

namespace meshloom::trainer {

// The ranks of a collective: the rank at each place. One's own is among them.
using Group = std::vector<int>;
Group all_ranks(const hal::Transport& transport);

// For a patience that has no end.
constexpr double kForever = 1e9;

// Does what one place of the group must do; the others do the same with their own lists, and every rank carries out the
// exchanges of two ranks in the same order. tensors[i] is the memory of the moves' tensor i; what is received must
// overlap nothing that is sent. Moves are cut into messages of at most hal::kMaxMessageBytes. Returns when all is
// received and sent.
//
// `patience`, in seconds: when so long no message came from a rank that owes one (or none was taken by a rank that must
// receive one), throws hal::PeerLost, which names the rank and its host, the move that it owes and since when it has
// been waited for. Throws Error for a rank that is not in the group and for moves outside the tensors; what the
// transport throws.
void exchange(hal::Transport& transport, const Group& group,
              const std::vector<kernels::collective::Move>& moves,
              std::span<const std::span<std::byte>> tensors, const hal::Envelope& envelope, double patience);

// Carries out lists of moves on a thread of its own, many at once, while the caller computes.
class ExchangeThread {
 public:
  ExchangeThread(hal::Transport& transport, double patience);
  // Withdraws what is not done, as when the job ends.
  ~ExchangeThread();
  ExchangeThread(const ExchangeThread&) = delete;
  ExchangeThread& operator=(const ExchangeThread&) = delete;

  // Begins what exchange() does, behind what was begun before. All arguments, and the memory, must stay until end(). Until
  // everything has ended nobody else may use the transport. Returns a number for end(). begin() and end() throw what exchange()
  // throws for any of the moves on their way, and then again and again.
  std::uint64_t begin(const Group& group, const std::vector<kernels::collective::Move>& moves,
                      std::span<const std::span<std::byte>> tensors, const hal::Envelope& envelope);
  // Waits until it is done.
  void end(std::uint64_t number);

 private:
  void run();

  hal::Transport& transport_;
  const double patience_;
  std::mutex mutex_;
  std::condition_variable work_, done_;
  struct Order;
  std::list<Order> orders_;       // that the thread has not taken yet
  std::set<std::uint64_t> open_;  // that are not done
  std::uint64_t next_ = 0;
  std::exception_ptr failed_;
  bool stopped_ = false;
  std::thread thread_;
};

// Adds up `parts` pieces of sum.size() floats each, which lie one after another, in their order: ((p0 + p1) + p2) + ...
// With the pieces of an all_to_all in the order of ranks this is a reduce-scatter whose bits depend on nothing else.
void sum_in_order(std::span<const float> pieces, int parts, std::span<float> sum);

}  // namespace meshloom::trainer
