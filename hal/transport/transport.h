// Messages between the ranks of a job, which is all that ranks share. Implemented by backends/threads and backends/mpi.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hal/error.h"

namespace meshloom::hal {

// The largest message, in bytes. Longer data is cut by those who send and receive it, so that the pieces of a slow
// transfer are seen to arrive, and because MPI counts in an int.
constexpr std::int64_t kMaxMessageBytes = std::int64_t{16} << 20;
// Tags are from 0 to kMaxTag - 1; kMaxTag itself is for wrappers.
constexpr std::int32_t kMaxTag = 1 << 22;

// What a message belongs to. Only the tag decides which receive takes it; op and path ("all_gather", "decoder/layer3")
// name it in errors, and are what checked transports compare.
struct Envelope {
  std::int32_t tag = 0;
  std::string op, path;
};

struct Peer {
  std::string host;
  int node = 0;  // ranks with the same number share a host
};

// A rank does not answer: it has ended, or owes a message for too long.
class PeerLost : public Error {
 public:
  PeerLost(int rank, std::string where, std::string rule, std::string found)
      : Error(std::move(where), std::move(rule), std::move(found)), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

// Some rank has ended the job.
class JobAborted : public Error {
 public:
  using Error::Error;
};

// A message that was begun. The destructor withdraws one that is not done: its memory is not touched any more, and the
// message may be lost, so that the job can only end then.
class Request {
 public:
  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  // Moves messages on, never blocks, and says whether this one is done: received whole, or sent so far that its memory
  // may be used again. Throws PeerLost, JobAborted, and Error when the other side's message has another size.
  virtual bool done() = 0;

 protected:
  Request() = default;
};

// The ranks of a job, as one of them. One thread at a time uses a transport and its requests. Messages go on only while
// requests are asked whether they are done. Between two ranks, messages with equal tags arrive in the order in which
// they were sent, and receives take them in the order in which they were begun. A transport outlives its requests.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const Peer& peer(int rank) const { return peers_.at(static_cast<std::size_t>(rank)); }
  // "rank 2 (host)"
  std::string name(int rank) const;

  // Begins a message, which may be empty. The memory must stay, and what is sent must not change, until the request is
  // done or gone. Both sides must give the same size. Throws Error for a rank that is not another one of the job, a tag
  // out of range, or more than kMaxMessageBytes; JobAborted.
  std::unique_ptr<Request> send(int to, const Envelope& envelope, std::span<const std::byte> data);
  std::unique_ptr<Request> receive(int from, const Envelope& envelope, std::span<std::byte> data);

  // Ends the job on every rank, for a reason that is told once. Other ranks of the same process get JobAborted from
  // what they ask next; processes are ended.
  [[noreturn]] void abort(const std::string& reason);

 protected:
  Transport(int rank, std::vector<Peer> peers) : rank_(rank), peers_(std::move(peers)) {}
  virtual std::unique_ptr<Request> do_send(int to, const Envelope& envelope,
                                           std::span<const std::byte> data) = 0;
  virtual std::unique_ptr<Request> do_receive(int from, const Envelope& envelope,
                                              std::span<std::byte> data) = 0;
  // Tells the other ranks the reason, which begins with this rank's name. May end the process.
  virtual void do_abort(const std::string& reason) = 0;

 private:
  void require(int other, const Envelope& envelope, std::size_t bytes, const char* verb) const;

  int rank_;
  std::vector<Peer> peers_;
};

// "all_gather of decoder/layer3"
std::string to_string(const Envelope& envelope);

// Waits until all are done, without an end.
void wait(std::span<const std::unique_ptr<Request>> requests);

}  // namespace meshloom::hal
