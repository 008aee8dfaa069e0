#include "trainer/serve/pages/page_message.h"

#include <xxhash.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "messages are little-endian");

constexpr std::uint32_t kMagic = 0x3150564B;  // "KVP1"
constexpr std::size_t kHeader = 16, kChecksum = 8;
constexpr std::uint64_t kHelloBytes = 256 << 10, kReasonBytes = kMaxReason + 16;
constexpr const char* kWhere = "message about pages";

template <typename T>
void put(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <typename Items>
void put_list(std::string& out, const Items& items) {
  put(out, static_cast<std::uint32_t>(items.size()));
  out.append(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(*items.data()));
}
void put(std::string& out, const ChainHash& hash) {
  put(out, hash.low);
  put(out, hash.high);
}

struct Write {
  std::string& out;
  void operator()(const PageHello& m) const {
    put_list(out, m.key);
    const KVIdentity& i = m.identity;
    for (const std::string* text : {&i.weights, &i.model, &i.dtype, &i.caches, &i.arithmetic})
      put_list(out, *text);
    put(out, i.page_size);
    put(out, m.max_tokens);
  }
  void operator()(const PageAsk& m) const {
    put(out, m.id);
    put(out, m.first);
    put(out, m.last);
    put_list(out, m.tokens);
  }
  void operator()(const PageCancel& m) const { put(out, m.id); }
  void operator()(const PageData& m) const {
    put(out, m.id);
    put(out, m.index);
    put(out, m.hash);
    put_list(out, m.tokens);
    put_list(out, m.bytes);
  }
  void operator()(const PageEnd& m) const {
    put(out, m.id);
    put(out, static_cast<std::uint8_t>(m.status));
    put_list(out, m.reason);
  }
  void operator()(const PageGoodbye& m) const { put_list(out, m.reason); }
};

[[noreturn]] void fail(const std::string& rule, const std::string& found = {}) {
  throw Error(kWhere, rule, found);
}

// Reads a payload.
class Payload {
 public:
  explicit Payload(std::string_view bytes) : left_(bytes) {}

  template <typename T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, taken(sizeof value), sizeof value);
    return value;
  }
  std::int64_t natural(const char* what) {
    const auto value = number<std::int64_t>();
    if (value < 0) fail(std::string(what) + " must not be negative", std::to_string(value));
    return value;
  }
  ChainHash hash() {
    const auto low = number<std::uint64_t>();
    return {low, number<std::uint64_t>()};
  }
  template <typename Items>
  Items list() {
    const auto count = number<std::uint32_t>();
    constexpr std::size_t kSize = sizeof(typename Items::value_type);
    if (count > left_.size() / kSize)
      fail("a list must end with its message or before",
           std::to_string(count) + " elements in " + std::to_string(left_.size()) + " bytes");
    Items items;
    items.resize(count);
    if (count > 0) std::memcpy(items.data(), taken(count * kSize), count * kSize);
    return items;
  }
  void end() const {
    if (!left_.empty())
      fail("nothing may stand behind what a message says", std::to_string(left_.size()) + " bytes");
  }

 private:
  const char* taken(std::size_t size) {
    if (size > left_.size()) fail("a message must have all that its type has", "an end before");
    const char* data = left_.data();
    left_.remove_prefix(size);
    return data;
  }

  std::string_view left_;
};

PageMessage read(std::size_t type, std::string_view bytes) {
  Payload in(bytes);
  const auto text = [&] { return in.list<std::string>(); };
  PageMessage message;
  switch (type) {
    case 0: {
      PageHello m;
      m.key = text();
      for (std::string* part : {&m.identity.weights, &m.identity.model, &m.identity.dtype, &m.identity.caches,
                                &m.identity.arithmetic})
        *part = text();
      m.identity.page_size = in.natural("a page's size");
      m.max_tokens = in.natural("the length of a prompt");
      message = std::move(m);
      break;
    }
    case 1: {
      PageAsk m;
      m.id = in.number<std::uint64_t>();
      m.first = in.natural("a page's index");
      m.last = in.hash();
      m.tokens = in.list<std::vector<std::int32_t>>();
      message = std::move(m);
      break;
    }
    case 2:
      message = PageCancel{in.number<std::uint64_t>()};
      break;
    case 3: {
      PageData m;
      m.id = in.number<std::uint64_t>();
      m.index = in.natural("a page's index");
      m.hash = in.hash();
      m.tokens = in.list<std::vector<std::int32_t>>();
      m.bytes = in.list<std::vector<std::byte>>();
      message = std::move(m);
      break;
    }
    case 4: {
      PageEnd m;
      m.id = in.number<std::uint64_t>();
      const auto status = in.number<std::uint8_t>();
      if (status > static_cast<std::uint8_t>(PageEnd::Status::last))
        fail("a status must be from 0 to 2", std::to_string(status));
      m.status = static_cast<PageEnd::Status>(status);
      m.reason = text();
      message = std::move(m);
      break;
    }
    default:
      message = PageGoodbye{text()};
  }
  in.end();
  return message;
}

}  // namespace

PageMessageLimits limits_of_asks(std::int64_t max_tokens) {
  PageMessageLimits limits{};
  limits[0] = kHelloBytes;
  limits[1] = 36 + static_cast<std::uint64_t>(max_tokens) * sizeof(std::int32_t);
  limits[2] = 8;
  limits[5] = kReasonBytes;
  return limits;
}

PageMessageLimits limits_of_pages(std::int64_t page_size, std::int64_t page_bytes) {
  PageMessageLimits limits{};
  limits[0] = kHelloBytes;
  limits[3] = 40 + static_cast<std::uint64_t>(page_size) * sizeof(std::int32_t) +
              static_cast<std::uint64_t>(page_bytes);
  limits[4] = limits[5] = kReasonBytes;
  return limits;
}

std::string encoded(const PageMessage& message) {
  std::string out;
  if (const auto* page = std::get_if<PageData>(&message))
    out.reserve(kHeader + 64 + page->tokens.size() * sizeof(std::int32_t) + page->bytes.size());
  put(out, kMagic);
  put(out, static_cast<std::uint32_t>(message.index()));
  put(out, std::uint64_t{0});
  std::visit(Write{out}, message);
  const std::uint64_t size = out.size() - kHeader;
  std::memcpy(out.data() + 8, &size, sizeof size);
  put(out, static_cast<std::uint64_t>(XXH3_64bits(out.data(), out.size())));
  return out;
}

void PageMessageReader::add(std::string_view bytes) {
  buffer_.erase(0, begin_);
  begin_ = 0;
  buffer_ += bytes;
}

std::optional<PageMessage> PageMessageReader::next() {
  const std::string_view left = std::string_view(buffer_).substr(begin_);
  if (left.size() < kHeader) return std::nullopt;
  std::uint32_t magic, type;
  std::uint64_t size, sum;
  std::memcpy(&magic, left.data(), sizeof magic);
  std::memcpy(&type, left.data() + 4, sizeof type);
  std::memcpy(&size, left.data() + 8, sizeof size);
  if (magic != kMagic) fail("must begin with KVP1");
  if (type >= limits_.size() || limits_[type] == 0)
    fail("must be of a type that is expected here", std::to_string(type));
  if (size > limits_[type])
    fail("of type " + std::to_string(type) + " must have at most " + std::to_string(limits_[type]) + " bytes",
         std::to_string(size));
  const std::size_t end = kHeader + static_cast<std::size_t>(size);
  if (left.size() < end + kChecksum) return std::nullopt;
  std::memcpy(&sum, left.data() + end, sizeof sum);
  if (sum != XXH3_64bits(left.data(), end)) fail("must have the checksum of its bytes", "another");
  PageMessage message = read(type, left.substr(kHeader, static_cast<std::size_t>(size)));
  begin_ += end + kChecksum;
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  }
  return message;
}

}  // namespace meshloom::trainer
