// The messages by which a server that decodes gets the pages of a prompt from one that computed them. A message is, in little-endian:
//
//   u32 magic "KVP1" | u32 type | u64 bytes of the payload | payload | u64 XXH3 (64 bits) of all that stands in front
//
// Texts and lists in a payload have their number of elements in front, as u32. What comes over the network is not trusted: a
// message has a limit by its type, which is compared before its payload is waited for, and its checksum and every length in it must be right.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trainer/inference/kv_identity.h"

namespace meshloom::trainer {

// The first message of each side. The side that decodes speaks first, so that its key is known before anything is said to it.
struct PageHello {
  std::string key;  // of the side that decodes; "" = none
  KVIdentity identity;
  std::int64_t max_tokens = 0;  // of a prompt that is computed for others; 0 = none is
  bool operator==(const PageHello&) const = default;
};

// Asks for the pages of `tokens` from `first` on.
struct PageAsk {
  std::uint64_t id = 0;  // of no earlier one of the connection
  std::int64_t first = 0;
  ChainHash last;  // of the last page
  std::vector<std::int32_t> tokens;
  bool operator==(const PageAsk&) const = default;
};

// Nobody needs these pages any more.
struct PageCancel {
  std::uint64_t id = 0;
  bool operator==(const PageCancel&) const = default;
};

struct PageData {
  std::uint64_t id = 0;
  std::int64_t index = 0;  // of the page in the prompt
  ChainHash hash;          // of the page
  std::vector<std::int32_t> tokens;
  std::vector<std::byte> bytes;  // what the caches keep of it (ModelRunner::read_page())
  bool operator==(const PageData&) const = default;
};

constexpr std::size_t kMaxReason = 2048;  // bytes

// The last message about an ask, also about one that was cancelled.
struct PageEnd {
  enum class Status : std::uint8_t {
    whole,    // all pages were sent
    more,     // too much was unread: the rest may be asked for
    refused,  // `reason` says why
    last = refused
  };
  std::uint64_t id = 0;
  Status status = Status::whole;
  std::string reason;
  bool operator==(const PageEnd&) const = default;
};

// Why the connection ends.
struct PageGoodbye {
  std::string reason;
  bool operator==(const PageGoodbye&) const = default;
};

using PageMessage = std::variant<PageHello, PageAsk, PageCancel, PageData, PageEnd, PageGoodbye>;

// The most bytes of a payload, by PageMessage::index(); 0 = no such message is expected.
using PageMessageLimits = std::array<std::uint64_t, std::variant_size_v<PageMessage>>;
// What the side that computes may be sent, for prompts of so many tokens, and what the side that decodes may be.
PageMessageLimits limits_of_asks(std::int64_t max_tokens);
PageMessageLimits limits_of_pages(std::int64_t page_size, std::int64_t page_bytes);

std::string encoded(const PageMessage& message);

// Makes messages of bytes as they come. It keeps no more than a message of the limits and what was added last.
class PageMessageReader {
 public:
  explicit PageMessageReader(const PageMessageLimits& limits) : limits_(limits) {}

  void add(std::string_view bytes);
  // The next message; nothing when more bytes are needed. Throws Error for what is no message or not an expected one; nothing can be read
  // after that.
  std::optional<PageMessage> next();

 private:
  PageMessageLimits limits_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of what is not yet read, in buffer_
};

}  // namespace meshloom::trainer
