#include "hal/transport/transport.h"

#include "hal/backoff.h"

namespace meshloom::hal {

std::string to_string(const Envelope& envelope) {
  std::string text = envelope.op.empty() ? "message" : envelope.op;
  if (!envelope.path.empty()) text += " of " + envelope.path;
  return text;
}

std::string Transport::name(int rank) const {
  return "rank " + std::to_string(rank) + " (" + peer(rank).host + ")";
}

void Transport::require(int other, const Envelope& envelope, std::size_t bytes, const char* verb) const {
  const auto fail = [&](const std::string& rule, const std::string& found) {
    throw Error(name(rank()) + ", " + to_string(envelope), std::string(verb) + " " + rule, found);
  };
  if (other < 0 || other >= size() || other == rank())
    fail("must name another rank below " + std::to_string(size()), "rank " + std::to_string(other));
  if (envelope.tag < 0 || envelope.tag > kMaxTag)
    fail("must have a tag from 0 to " + std::to_string(kMaxTag - 1), std::to_string(envelope.tag));
  if (bytes > static_cast<std::size_t>(kMaxMessageBytes))
    fail("must be of at most " + std::to_string(kMaxMessageBytes) + " bytes", std::to_string(bytes));
}

std::unique_ptr<Request> Transport::send(int to, const Envelope& envelope, std::span<const std::byte> data) {
  require(to, envelope, data.size(), "a send");
  return do_send(to, envelope, data);
}

std::unique_ptr<Request> Transport::receive(int from, const Envelope& envelope, std::span<std::byte> data) {
  require(from, envelope, data.size(), "a receive");
  return do_receive(from, envelope, data);
}

void Transport::abort(const std::string& reason) {
  do_abort(reason.starts_with(name(rank())) ? reason : name(rank()) + ": " + reason);
  throw JobAborted(name(rank()), "the job goes on", reason);
}

void wait(std::span<const std::unique_ptr<Request>> requests) {
  Backoff backoff;
  for (const std::unique_ptr<Request>& request : requests)
    while (!request->done()) backoff.pause();
}

}  // namespace meshloom::hal
