#include "trainer/execute/exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "hal/backoff.h"
#include "hal/error.h"

namespace meshloom::trainer {
namespace {

using kernels::collective::Move;
using Clock = std::chrono::steady_clock;

// One message of a move.
struct Piece {
  std::unique_ptr<hal::Request> request;  // nullptr = done
  int rank = 0;
  std::size_t move = 0;  // its index in the list
  std::int64_t offset = 0, bytes = 0;
};

// What is known of the other ranks, by rank.
struct Heard {
  explicit Heard(int ranks) : last(static_cast<std::size_t>(ranks)), open(last.size(), 0) {}

  // Of a rank that nothing was asked of, nothing was expected.
  void ask(int rank) {
    if (open[static_cast<std::size_t>(rank)]++ == 0) last[static_cast<std::size_t>(rank)] = Clock::now();
  }
  void answer(int rank) {
    --open[static_cast<std::size_t>(rank)];
    last[static_cast<std::size_t>(rank)] = Clock::now();
  }
  std::vector<Clock::time_point> last;  // when a message was last done, or asked for
  std::vector<std::int64_t> open;       // messages that are not done
};

class Walk {
 public:
  Walk(hal::Transport& transport, const Group& group, const std::vector<Move>& moves,
       std::span<const std::span<std::byte>> tensors, const hal::Envelope& envelope, Heard& heard)
      : transport_(transport),
        group_(group),
        moves_(moves),
        tensors_(tensors),
        envelope_(envelope),
        heard_(heard) {
    const auto own = std::find(group.begin(), group.end(), transport.rank());
    if (own == group.end()) fail("the rank must be one of the group", "ranks " + ranks_text());
    place_ = static_cast<int>(own - group.begin());
  }

  void begin() {
    check();
    begin(false);  // first, so that no message arrives unexpected that need not
    begin(true);
    copy();
  }

  bool done() const { return pieces_.empty(); }

  // Whether any message was done.
  bool progress() {
    const std::size_t before = pieces_.size();
    for (Piece& piece : pieces_)
      if (piece.request->done()) {
        piece.request.reset();
        heard_.answer(piece.rank);
      }
    std::erase_if(pieces_, [](const Piece& piece) { return !piece.request; });
    return pieces_.size() < before;
  }

  // Throws PeerLost when a rank was not heard of for too long. Of several the one that owes a piece is named first: a
  // rank that does not take one may be waiting itself.
  void be_patient(double patience) const {
    const Clock::time_point now = Clock::now();
    const auto waited = [&](int rank) { return now - heard_.last[static_cast<std::size_t>(rank)]; };
    const Piece* lost = nullptr;
    for (const Piece& piece : pieces_)
      if (std::chrono::duration<double>(waited(piece.rank)).count() > patience &&
          (!lost || (moves_[lost->move].out && !moves_[piece.move].out)))
        lost = &piece;
    if (!lost) return;
    const std::time_t since = std::chrono::system_clock::to_time_t(
        std::chrono::system_clock::now() -
        std::chrono::duration_cast<std::chrono::system_clock::duration>(waited(lost->rank)));
    const Move& move = moves_[lost->move];
    throw hal::PeerLost(lost->rank, where(),
                        fmt::format("{} must {} move {} (bytes [{}, {}) of tensor {}) within {:g} s",
                                    transport_.name(lost->rank), move.out ? "take" : "send", lost->move,
                                    lost->offset, lost->offset + lost->bytes, move.tensor, patience),
                        fmt::format("nothing since {:%H:%M:%S}", fmt::localtime(since)));
  }

 private:
  std::string where() const { return transport_.name(transport_.rank()) + ", " + to_string(envelope_); }

  [[noreturn]] void fail(const std::string& rule, const std::string& found) const {
    throw Error(where(), rule, found);
  }

  std::string ranks_text() const {
    std::string text;
    for (const int rank : group_) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return text;
  }

  void check() const {
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      const Move& move = moves_[i];
      if (move.peer < 0 || move.peer >= static_cast<int>(group_.size()))
        fail(fmt::format("move {} must name one of {} places", i, group_.size()), std::to_string(move.peer));
      const std::int64_t whole =
          move.tensor >= 0 && move.tensor < static_cast<int>(tensors_.size())
              ? static_cast<std::int64_t>(tensors_[static_cast<std::size_t>(move.tensor)].size())
              : -1;
      if (move.offset < 0 || move.bytes < 0 || move.offset > whole - move.bytes)
        fail(fmt::format("move {} must lie within tensor {}", i, move.tensor),
             fmt::format("bytes [{}, {}) of {}", move.offset, move.offset + move.bytes,
                         std::max<std::int64_t>(whole, 0)));
    }
  }

  std::span<std::byte> memory(const Move& move) const {
    return tensors_[static_cast<std::size_t>(move.tensor)].subspan(static_cast<std::size_t>(move.offset),
                                                                   static_cast<std::size_t>(move.bytes));
  }

  void begin(bool out) {
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      const Move& move = moves_[i];
      if (move.out != out || move.peer == place_) continue;
      const int rank = group_[static_cast<std::size_t>(move.peer)];
      const std::span<std::byte> whole = memory(move);
      for (std::int64_t at = 0; at < move.bytes; at += hal::kMaxMessageBytes) {
        const std::int64_t bytes = std::min(move.bytes - at, hal::kMaxMessageBytes);
        const auto part = whole.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes));
        Piece piece{nullptr, rank, i, move.offset + at, bytes};
        piece.request =
            out ? transport_.send(rank, envelope_, part) : transport_.receive(rank, envelope_, part);
        pieces_.push_back(std::move(piece));
        heard_.ask(rank);
      }
    }
  }

  // Moves to oneself: the k-th out is the k-th in.
  void copy() const {
    std::vector<std::span<std::byte>> out, in;
    for (const Move& move : moves_)
      if (move.peer == place_) (move.out ? out : in).push_back(memory(move));
    if (out.size() != in.size())
      fail("moves to oneself must come in pairs", fmt::format("{} out, {} in", out.size(), in.size()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i].size() != in[i].size())
        fail("moves to oneself must have equal bytes",
             fmt::format("{} out, {} in", out[i].size(), in[i].size()));
      if (!out[i].empty()) std::memmove(in[i].data(), out[i].data(), out[i].size());
    }
  }

  hal::Transport& transport_;
  const Group& group_;
  const std::vector<Move>& moves_;
  std::span<const std::span<std::byte>> tensors_;
  const hal::Envelope& envelope_;
  Heard& heard_;
  int place_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace

Group all_ranks(const hal::Transport& transport) {
  Group group(static_cast<std::size_t>(transport.size()));
  std::iota(group.begin(), group.end(), 0);
  return group;
}

void exchange(hal::Transport& transport, const Group& group, const std::vector<Move>& moves,
              std::span<const std::span<std::byte>> tensors, const hal::Envelope& envelope, double patience) {
  Heard heard(transport.size());
  Walk walk(transport, group, moves, tensors, envelope, heard);
  walk.begin();
  hal::Backoff backoff;
  while (!walk.done())
    if (walk.progress()) {
      backoff.reset();
    } else {
      walk.be_patient(patience);
      backoff.pause();
    }
}

struct ExchangeThread::Order {
  std::uint64_t number;
  const Group* group;
  const std::vector<Move>* moves;
  std::span<const std::span<std::byte>> tensors;
  const hal::Envelope* envelope;
};

ExchangeThread::ExchangeThread(hal::Transport& transport, double patience)
    : transport_(transport), patience_(patience), thread_([this] { run(); }) {}

ExchangeThread::~ExchangeThread() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  work_.notify_one();
  thread_.join();
}

std::uint64_t ExchangeThread::begin(const Group& group, const std::vector<Move>& moves,
                                    std::span<const std::span<std::byte>> tensors,
                                    const hal::Envelope& envelope) {
  const std::lock_guard lock(mutex_);
  if (failed_) std::rethrow_exception(failed_);
  orders_.push_back({next_, &group, &moves, tensors, &envelope});
  open_.insert(next_);
  work_.notify_one();
  return next_++;
}

void ExchangeThread::end(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return failed_ || open_.count(number) == 0; });
  if (failed_) std::rethrow_exception(failed_);
}

void ExchangeThread::run() {
  Heard heard(transport_.size());
  std::list<std::pair<std::uint64_t, Walk>> walks;
  hal::Backoff backoff;
  std::unique_lock lock(mutex_);
  while (true) {
    if (walks.empty()) work_.wait(lock, [&] { return stopped_ || !orders_.empty(); });
    if (stopped_) return;
    std::list<Order> orders = std::exchange(orders_, {});
    lock.unlock();
    std::vector<std::uint64_t> done;
    std::exception_ptr failed;
    try {
      bool moved = !orders.empty();
      for (const Order& order : orders) {
        walks.emplace_back(order.number, Walk(transport_, *order.group, *order.moves, order.tensors,
                                              *order.envelope, heard));
        walks.back().second.begin();
      }
      for (auto& [number, walk] : walks) {
        moved = walk.progress() || moved;
        if (walk.done()) done.push_back(number);
      }
      std::erase_if(walks, [](const auto& entry) { return entry.second.done(); });
      if (moved) {
        backoff.reset();
      } else {
        for (const auto& [number, walk] : walks) walk.be_patient(patience_);
        backoff.pause();
      }
    } catch (...) {
      failed = std::current_exception();
      walks.clear();  // withdraws the rest
    }
    lock.lock();
    for (const std::uint64_t number : done) open_.erase(number);
    if (failed && !failed_) failed_ = failed;
    if (failed || !done.empty()) done_.notify_all();
  }
}

void sum_in_order(std::span<const float> pieces, int parts, std::span<float> sum) {
  if (parts < 1 || pieces.size() != static_cast<std::size_t>(parts) * sum.size())
    throw Error("sum_in_order", fmt::format("there must be {} pieces of {} floats", parts, sum.size()),
                std::to_string(pieces.size()) + " floats");
  std::copy_n(pieces.begin(), sum.size(), sum.begin());
  for (int part = 1; part < parts; ++part) {
    const std::span<const float> piece =
        pieces.subspan(static_cast<std::size_t>(part) * sum.size(), sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += piece[i];
  }
}

}  // namespace meshloom::trainer
