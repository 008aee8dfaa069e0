// Messages about pages: the bytes as they are, and as the payload of a message whose header and checksum are right, which no fuzzer
// would find. The first byte is its type, the second says how it is cut.
#include "trainer/serve/pages/page_message.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "tests/fuzz/target.h"

namespace {

using namespace meshloom;

// What is read must be written again as it was.
void read(const std::string& bytes, std::size_t cut, const trainer::PageMessageLimits& limits) {
  tests::refusal_or_not([&] {
    trainer::PageMessageReader reader(limits);
    std::string again;
    for (std::size_t at = 0; at < bytes.size(); at += cut) {
      reader.add(std::string_view(bytes).substr(at, cut));
      while (const auto message = reader.next()) again += trainer::encoded(*message);
    }
    if (bytes.compare(0, again.size(), again) != 0) __builtin_trap();
  });
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const trainer::PageMessageLimits asks = trainer::limits_of_asks(1024),
                                   pages = trainer::limits_of_pages(16, 4096);
  read(bytes, 7, asks);
  read(bytes, bytes.size() + 1, pages);
  if (size < 2) return 0;
  std::string message = "KVP1";
  put(message, static_cast<std::uint32_t>(data[0] % asks.size()));
  put(message, static_cast<std::uint64_t>(size - 2));
  message.append(bytes, 2);
  put(message, static_cast<std::uint64_t>(XXH3_64bits(message.data(), message.size())));
  message += message;
  for (const trainer::PageMessageLimits& limits : {asks, pages}) read(message, data[1] + 1u, limits);
  return 0;
}
