#include "hal/wrappers/delayed_transport.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "hal/wrappers/forwarding_transport.h"

namespace meshloom::hal {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration of_seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// In [0, 1), from a counter (splitmix64), so that equal runs have equal jitter.
double uniform(std::uint64_t counter) {
  std::uint64_t z = (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

class DelayedTransport;

class DelayedSend : public Request {
 public:
  DelayedSend(DelayedTransport& transport, int to, Envelope envelope, std::span<const std::byte> data,
              Clock::time_point due)
      : transport_(transport), to_(to), envelope_(std::move(envelope)), data_(data), due_(due) {}
  ~DelayedSend() override;
  bool done() override;

 private:
  friend class DelayedTransport;
  DelayedTransport& transport_;
  int to_;
  Envelope envelope_;
  std::span<const std::byte> data_;
  Clock::time_point due_;
  std::unique_ptr<Request> sent_;
};

class DelayedReceive : public Request {
 public:
  DelayedReceive(DelayedTransport& transport, int from, std::size_t bytes, std::unique_ptr<Request> received)
      : transport_(transport), from_(from), bytes_(bytes), received_(std::move(received)) {}
  bool done() override;

 private:
  DelayedTransport& transport_;
  int from_;
  std::size_t bytes_;
  std::unique_ptr<Request> received_;
  bool arrived_ = false;
  Clock::time_point due_;
};

class DelayedTransport : public ForwardingTransport {
 public:
  DelayedTransport(std::unique_ptr<Transport> inner, const LinkModel& link, const std::map<int, double>& slow)
      : ForwardingTransport(std::move(inner)),
        link_(link),
        held_(static_cast<std::size_t>(size())),
        last_due_(held_.size()) {
    for (int rank = 0; rank < size(); ++rank) {
      const auto it = slow.find(rank);
      slow_.push_back(it == slow.end() ? 1 : it->second);
    }
  }

  // Hands over what would have arrived by now, in order.
  void progress() {
    const Clock::time_point now = Clock::now();
    for (std::deque<DelayedSend*>& held : held_)
      while (!held.empty() && held.front()->due_ <= now) {
        DelayedSend& first = *held.front();
        first.sent_ = inner().send(first.to_, first.envelope_, first.data_);
        held.pop_front();
      }
  }

  void forget(const DelayedSend& sending) {
    std::erase(held_[static_cast<std::size_t>(sending.to_)], &sending);
  }

  // When the port has taken in a message whose last byte is at its entrance now. The first byte came when the sender's
  // port let it go, but the port may have been busy with other messages then.
  Clock::time_point taken_in(int from, std::size_t bytes) {
    const Clock::time_point now = Clock::now();
    in_free_ = std::max(now, std::max(in_free_, now - port_time(bytes, from)) + port_time(bytes, rank()));
    return in_free_;
  }

 protected:
  std::unique_ptr<Request> do_send(int to, const Envelope& envelope,
                                   std::span<const std::byte> data) override {
    const Clock::time_point now = Clock::now();
    out_free_ = std::max(out_free_, now) + port_time(data.size(), rank());
    const double factor =
        std::max(slow_[static_cast<std::size_t>(rank())], slow_[static_cast<std::size_t>(to)]);
    const double jitter = link_.jitter * uniform((static_cast<std::uint64_t>(rank()) << 40) + messages_++);
    Clock::time_point& last = last_due_[static_cast<std::size_t>(to)];
    last = std::max(last, out_free_ + of_seconds(factor * (link_.latency + jitter)));
    auto request = std::make_unique<DelayedSend>(*this, to, envelope, data, last);
    held_[static_cast<std::size_t>(to)].push_back(request.get());
    return request;
  }

  std::unique_ptr<Request> do_receive(int from, const Envelope& envelope,
                                      std::span<std::byte> data) override {
    return std::make_unique<DelayedReceive>(*this, from, data.size(), inner().receive(from, envelope, data));
  }

 private:
  Clock::duration port_time(std::size_t bytes, int of) const {
    if (link_.bandwidth <= 0) return {};
    return of_seconds(slow_[static_cast<std::size_t>(of)] * static_cast<double>(bytes) / link_.bandwidth);
  }

  LinkModel link_;
  std::vector<double> slow_;
  std::vector<std::deque<DelayedSend*>> held_;
  std::vector<Clock::time_point> last_due_;  // by the receiving rank
  Clock::time_point out_free_, in_free_;
  std::uint64_t messages_ = 0;
};

DelayedSend::~DelayedSend() {
  if (!sent_) transport_.forget(*this);
}

bool DelayedSend::done() {
  transport_.progress();
  return sent_ && sent_->done();
}

bool DelayedReceive::done() {
  transport_.progress();
  if (!arrived_) {
    if (!received_->done()) return false;
    arrived_ = true;
    due_ = transport_.taken_in(from_, bytes_);
  }
  return Clock::now() >= due_;
}

}  // namespace

std::unique_ptr<Transport> delayed(std::unique_ptr<Transport> inner, const LinkModel& link,
                                   const std::map<int, double>& slow) {
  return std::make_unique<DelayedTransport>(std::move(inner), link, slow);
}

}  // namespace meshloom::hal
