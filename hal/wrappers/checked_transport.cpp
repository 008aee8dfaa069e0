#include "hal/wrappers/checked_transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hal/wrappers/forwarding_transport.h"

namespace meshloom::hal {
namespace {

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t value = 14695981039346656037u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return value;
}

// A text of which at most so much travels.
template <std::size_t kSize>
struct SentText {
  std::uint64_t hash = 0, size = 0;
  std::array<char, kSize> begin{};

  SentText() = default;
  explicit SentText(const std::string& text) : hash(fnv1a(text)), size(text.size()) {
    std::copy_n(text.begin(), std::min(text.size(), kSize), begin.begin());
  }
  bool operator==(const SentText&) const = default;
  std::string shown() const {
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(size, kSize));
    return "'" + std::string(begin.data(), length) + (size > kSize ? "..." : "") + "'";
  }
};

// What a message says about the next one. Ranks run the same program on the same kind of host.
struct Description {
  std::uint64_t number = 0, bytes = 0;
  std::int64_t tag = 0;
  SentText<64> op;
  SentText<960> path;
};

Description describe(std::uint64_t number, const Envelope& envelope, std::size_t bytes) {
  return {number, bytes, envelope.tag, SentText<64>(envelope.op), SentText<960>(envelope.path)};
}

class CheckedSend : public Request {
 public:
  CheckedSend(Transport& inner, int to, const Envelope& envelope, std::span<const std::byte> data,
              std::uint64_t number)
      : description_(describe(number, envelope, data.size())) {
    const Envelope of_description{kMaxTag, envelope.op, envelope.path};
    described_ = inner.send(to, of_description, std::as_bytes(std::span(&description_, 1)));
    sent_ = inner.send(to, envelope, data);
  }
  bool done() override {
    const bool described = described_->done();
    return sent_->done() && described;
  }

 private:
  Description description_;
  std::unique_ptr<Request> described_, sent_;
};

class CheckedTransport;

class CheckedReceive : public Request {
 public:
  CheckedReceive(CheckedTransport& transport, int from, Envelope envelope, std::span<std::byte> data,
                 std::uint64_t number);
  ~CheckedReceive() override;
  bool done() override;

 private:
  friend class CheckedTransport;
  // Once the description is here, compares it and begins to receive the message. Throws Error.
  bool begin();

  CheckedTransport& transport_;
  int from_;
  Envelope envelope_;
  std::span<std::byte> data_;
  std::uint64_t number_;
  Description description_;
  std::unique_ptr<Request> described_, received_;
};

class CheckedTransport : public ForwardingTransport {
 public:
  explicit CheckedTransport(std::unique_ptr<Transport> inner)
      : ForwardingTransport(std::move(inner)),
        sent_(static_cast<std::size_t>(size())),
        received_(sent_.size()),
        open_(sent_.size()) {}

  using ForwardingTransport::inner;

  // Receives of which no description has come yet, by the rank that sends, in the order in which they were begun.
  std::deque<CheckedReceive*>& open(int from) { return open_[static_cast<std::size_t>(from)]; }

 protected:
  std::unique_ptr<Request> do_send(int to, const Envelope& envelope,
                                   std::span<const std::byte> data) override {
    return std::make_unique<CheckedSend>(inner(), to, envelope, data, sent_[static_cast<std::size_t>(to)]++);
  }
  std::unique_ptr<Request> do_receive(int from, const Envelope& envelope,
                                      std::span<std::byte> data) override {
    return std::make_unique<CheckedReceive>(*this, from, envelope, data,
                                            received_[static_cast<std::size_t>(from)]++);
  }

 private:
  std::vector<std::uint64_t> sent_, received_;
  std::vector<std::deque<CheckedReceive*>> open_;
};

CheckedReceive::CheckedReceive(CheckedTransport& transport, int from, Envelope envelope,
                               std::span<std::byte> data, std::uint64_t number)
    : transport_(transport), from_(from), envelope_(std::move(envelope)), data_(data), number_(number) {
  const Envelope of_description{kMaxTag, envelope_.op, envelope_.path};
  described_ =
      transport_.inner().receive(from_, of_description, std::as_writable_bytes(std::span(&description_, 1)));
  transport_.open(from_).push_back(this);
}

CheckedReceive::~CheckedReceive() { std::erase(transport_.open(from_), this); }

bool CheckedReceive::begin() {
  if (!described_->done()) return false;
  const Description mine = describe(number_, envelope_, data_.size());
  const auto differ = [&](const std::string& what, const std::string& theirs, const std::string& ours) {
    throw Error("message " + std::to_string(number_) + " from " + transport_.name(from_) + " to " +
                    transport_.name(transport_.rank()),
                "both ranks must mean the same " + what,
                theirs + " (" + description_.op.shown() + " of " + description_.path.shown() + ") on rank " +
                    std::to_string(from_) + ", " + ours + " (" + mine.op.shown() + " of " +
                    mine.path.shown() + ") on rank " + std::to_string(transport_.rank()));
  };
  if (description_.number != mine.number)
    differ("place in the order", std::to_string(description_.number), std::to_string(mine.number));
  if (description_.op != mine.op) differ("op", description_.op.shown(), mine.op.shown());
  if (description_.path != mine.path) differ("path", description_.path.shown(), mine.path.shown());
  if (description_.tag != mine.tag)
    differ("tag", "tag " + std::to_string(description_.tag), "tag " + std::to_string(mine.tag));
  if (description_.bytes != mine.bytes)
    differ("bytes", std::to_string(description_.bytes) + " bytes", std::to_string(mine.bytes) + " bytes");
  received_ = transport_.inner().receive(from_, envelope_, data_);
  return true;
}

bool CheckedReceive::done() {
  // In order, so that messages with equal tags are not mistaken for each other.
  std::deque<CheckedReceive*>& open = transport_.open(from_);
  while (!open.empty() && open.front()->begin()) open.pop_front();
  return received_ && received_->done();
}

}  // namespace

std::unique_ptr<Transport> checked(std::unique_ptr<Transport> inner) {
  return std::make_unique<CheckedTransport>(std::move(inner));
}

}  // namespace meshloom::hal
