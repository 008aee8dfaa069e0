#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "backends/threads/backend.h"

namespace meshloom::backends::threads {
namespace {

using hal::Envelope;

// A message that was sent. The receiver copies it under the lock, and so the sender can withdraw it.
struct Message {
  std::int32_t tag = 0;
  std::span<const std::byte> data;
  std::mutex mutex;
  bool withdrawn = false;
  std::atomic<bool> done = false;
};

// The messages from one rank to another, in the order in which they were sent.
struct Channel {
  std::mutex mutex;
  std::deque<std::shared_ptr<Message>> sent;
};

struct Job {
  explicit Job(int ranks)
      : size(ranks),
        channels(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)),
        ended(static_cast<std::size_t>(ranks)) {}

  Channel& channel(int from, int to) { return channels[static_cast<std::size_t>(from * size + to)]; }

  // The first reason counts.
  void abort(const std::string& text) {
    const std::lock_guard lock(mutex);
    if (!aborted) reason = text;
    aborted = true;
  }

  void require_not_aborted(int rank) {
    if (!aborted) return;
    const std::lock_guard lock(mutex);
    throw hal::JobAborted("rank " + std::to_string(rank), "the job goes on", reason);
  }

  const int size;
  std::vector<Channel> channels;
  std::vector<std::atomic<bool>> ended;  // ranks that have left
  std::atomic<bool> aborted = false;
  std::mutex mutex;
  std::string reason;
};

class ThreadTransport;

class Sending : public hal::Request {
 public:
  Sending(Job& job, const ThreadTransport& transport, int to, Envelope envelope,
          std::shared_ptr<Message> message)
      : job_(job),
        transport_(transport),
        to_(to),
        envelope_(std::move(envelope)),
        message_(std::move(message)) {}
  ~Sending() override {
    if (message_->done) return;
    const std::lock_guard lock(message_->mutex);
    message_->withdrawn = true;
  }
  bool done() override;

 private:
  Job& job_;
  const ThreadTransport& transport_;
  int to_;
  Envelope envelope_;
  std::shared_ptr<Message> message_;
};

class Receiving : public hal::Request {
 public:
  Receiving(ThreadTransport& transport, int from, Envelope envelope, std::span<std::byte> data)
      : transport_(transport), from_(from), envelope_(std::move(envelope)), data_(data) {}
  ~Receiving() override;
  bool done() override;

 private:
  friend class ThreadTransport;
  ThreadTransport& transport_;
  int from_;
  Envelope envelope_;
  std::span<std::byte> data_;
  bool done_ = false;
};

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "localhost";
}

class ThreadTransport : public hal::Transport {
 public:
  ThreadTransport(std::shared_ptr<Job> job, int rank)
      : Transport(rank, std::vector<hal::Peer>(static_cast<std::size_t>(job->size), {host_name(), 0})),
        job_(std::move(job)),
        open_(static_cast<std::size_t>(size())) {}

  ~ThreadTransport() override {
    if (std::uncaught_exceptions() > exceptions_)
      job_->abort(name(rank()) + " has failed");
    else
      job_->ended[static_cast<std::size_t>(rank())] = true;
  }

  const std::shared_ptr<Job>& job() const { return job_; }

  // Gives the messages from a rank to the receives that wait for them, in order.
  void progress(int from) {
    Channel& channel = job_->channel(from, rank());
    std::deque<Receiving*>& open = open_[static_cast<std::size_t>(from)];
    // A message that comes meanwhile is not for the later one of two receives.
    std::vector<std::int32_t> missing;
    for (std::size_t i = 0; i < open.size();) {
      Receiving& receiving = *open[i];
      const std::int32_t tag = receiving.envelope_.tag;
      std::shared_ptr<Message> message;
      if (std::find(missing.begin(), missing.end(), tag) == missing.end() && !(message = take(channel, tag)))
        missing.push_back(tag);
      if (!message) {
        ++i;
        continue;
      }
      const std::lock_guard lock(message->mutex);
      if (message->withdrawn) continue;
      if (message->data.size() != receiving.data_.size())
        throw Error(name(rank()) + ", " + to_string(receiving.envelope_),
                    "a message from " + name(from) + " must have the " +
                        std::to_string(receiving.data_.size()) + " bytes that are expected",
                    std::to_string(message->data.size()));
      if (!message->data.empty())
        std::memcpy(receiving.data_.data(), message->data.data(), message->data.size());
      message->done = true;
      receiving.done_ = true;
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void forget(const Receiving& receiving) {
    std::erase(open_[static_cast<std::size_t>(receiving.from_)], &receiving);
  }

 protected:
  void do_abort(const std::string& reason) override { job_->abort(reason); }

  std::unique_ptr<hal::Request> do_send(int to, const Envelope& envelope,
                                        std::span<const std::byte> data) override {
    job_->require_not_aborted(rank());
    auto message = std::make_shared<Message>();
    message->tag = envelope.tag;
    message->data = data;
    Channel& channel = job_->channel(rank(), to);
    const std::lock_guard lock(channel.mutex);
    channel.sent.push_back(message);
    return std::make_unique<Sending>(*job_, *this, to, envelope, std::move(message));
  }

  std::unique_ptr<hal::Request> do_receive(int from, const Envelope& envelope,
                                           std::span<std::byte> data) override {
    job_->require_not_aborted(rank());
    auto request = std::make_unique<Receiving>(*this, from, envelope, data);
    open_[static_cast<std::size_t>(from)].push_back(request.get());
    return request;
  }

 private:
  // The first message with the tag, which is taken out; nullptr when there is none.
  static std::shared_ptr<Message> take(Channel& channel, std::int32_t tag) {
    const std::lock_guard lock(channel.mutex);
    for (auto it = channel.sent.begin(); it != channel.sent.end(); ++it)
      if ((*it)->tag == tag) {
        std::shared_ptr<Message> message = std::move(*it);
        channel.sent.erase(it);
        return message;
      }
    return nullptr;
  }

  std::shared_ptr<Job> job_;
  std::vector<std::deque<Receiving*>> open_;  // by the rank that sends, in the order in which they were begun
  int exceptions_ = std::uncaught_exceptions();
};

[[noreturn]] void fail_ended(const hal::Transport& transport, int peer, const Envelope& envelope,
                             const char* what) {
  throw hal::PeerLost(peer, transport.name(transport.rank()) + ", " + to_string(envelope),
                      transport.name(peer) + " must " + what, "it has ended");
}

bool Sending::done() {
  if (message_->done) return true;
  job_.require_not_aborted(transport_.rank());
  // A rank that has ended may have taken the message before.
  if (job_.ended[static_cast<std::size_t>(to_)] && !message_->done)
    fail_ended(transport_, to_, envelope_, "take what is sent");
  return false;
}

Receiving::~Receiving() {
  if (!done_) transport_.forget(*this);
}

bool Receiving::done() {
  if (done_) return true;
  transport_.job()->require_not_aborted(transport_.rank());
  // Looked at first: what a rank has sent before it ended is still there.
  const bool ended = transport_.job()->ended[static_cast<std::size_t>(from_)];
  transport_.progress(from_);
  if (!done_ && ended) fail_ended(transport_, from_, envelope_, "send its piece");
  return done_;
}

}  // namespace

std::vector<std::unique_ptr<hal::Transport>> make_transports(int ranks) {
  if (ranks < 1) throw Error("ranks", "there must be at least one", std::to_string(ranks));
  const auto job = std::make_shared<Job>(ranks);
  std::vector<std::unique_ptr<hal::Transport>> transports;
  for (int rank = 0; rank < ranks; ++rank) transports.push_back(std::make_unique<ThreadTransport>(job, rank));
  return transports;
}

void run_ranks(int ranks, const std::function<void(std::unique_ptr<hal::Transport>)>& body) {
  std::vector<std::unique_ptr<hal::Transport>> transports = make_transports(ranks);
  std::mutex mutex;
  std::exception_ptr first, abortion;
  std::vector<std::thread> threads;
  const auto run = [&](std::unique_ptr<hal::Transport> transport) {
    const int rank = transport->rank();
    const std::shared_ptr<Job> job = static_cast<ThreadTransport&>(*transport).job();
    const auto fail = [&](std::exception_ptr& into, const std::string& what) {
      {
        const std::lock_guard lock(mutex);
        if (!into) into = std::current_exception();
      }
      job->abort("rank " + std::to_string(rank) + ": " + what);
    };
    try {
      body(std::move(transport));
    } catch (const hal::JobAborted& error) {
      fail(abortion, error.what());
    } catch (const std::exception& error) {
      fail(first, error.what());
    } catch (...) {
      fail(first, "failed");
    }
  };
  for (std::unique_ptr<hal::Transport>& transport : transports)
    threads.emplace_back(run, std::move(transport));
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  if (abortion) std::rethrow_exception(abortion);
}

}  // namespace meshloom::backends::threads
