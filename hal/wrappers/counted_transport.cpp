#include "hal/wrappers/counted_transport.h"

#include <utility>

#include "hal/wrappers/forwarding_transport.h"

namespace meshloom::hal {
namespace {

class CountedTransport : public ForwardingTransport {
 public:
  CountedTransport(std::unique_ptr<Transport> inner, TrafficCount& count)
      : ForwardingTransport(std::move(inner)), count_(count) {
    count_.sent.assign(static_cast<std::size_t>(size()), {});
    count_.received = count_.sent;
  }

 protected:
  std::unique_ptr<Request> do_send(int to, const Envelope& envelope,
                                   std::span<const std::byte> data) override {
    add(count_.sent, to, data.size());
    return inner().send(to, envelope, data);
  }
  std::unique_ptr<Request> do_receive(int from, const Envelope& envelope,
                                      std::span<std::byte> data) override {
    add(count_.received, from, data.size());
    return inner().receive(from, envelope, data);
  }

 private:
  static void add(std::vector<Traffic>& traffic, int rank, std::size_t bytes) {
    Traffic& one = traffic[static_cast<std::size_t>(rank)];
    ++one.messages;
    one.bytes += static_cast<std::int64_t>(bytes);
  }

  TrafficCount& count_;
};

}  // namespace

std::unique_ptr<Transport> counted(std::unique_ptr<Transport> inner, TrafficCount& into) {
  return std::make_unique<CountedTransport>(std::move(inner), into);
}

}  // namespace meshloom::hal
