#include "trainer/metrics/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

namespace meshloom::trainer {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
    table[i] = c;
  }
  return table;
}

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

// Wire types: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
std::string key(int field, int wire) { return varint(static_cast<std::uint64_t>(field << 3 | wire)); }
std::string text_field(int field, std::string_view text) {
  return key(field, 2) + varint(text.size()) + std::string(text);
}

std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  static constexpr auto kTable = make_table();
  std::uint32_t crc = ~0u;
  for (char c : data) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string tf_record(std::string_view data) {
  const std::string length = raw(static_cast<std::uint64_t>(data.size()));
  return length + raw(masked(crc32c(length))) + std::string(data) + raw(masked(crc32c(data)));
}

std::string scalar_event(double wall_time, std::int64_t step,
                         const std::vector<std::pair<std::string, float>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary += text_field(1, text_field(1, tag) + key(2, 5) + raw(value));
  return key(1, 1) + raw(wall_time) + key(2, 0) + varint(static_cast<std::uint64_t>(step)) +
         text_field(5, summary);
}

EventFile::EventFile(const std::string& directory, std::int64_t resumed) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const double time = now();
  file_ = std::make_unique<AppendFile>(fmt::format("{}/events.out.tfevents.{}.{}.{}", directory,
                                                   static_cast<std::int64_t>(time), host, ::getpid()));
  file_->add(tf_record(key(1, 1) + raw(time) + text_field(3, "brain.Event:2")));
  // A session that starts (status 1) at a step tells readers to drop the later steps of older files.
  if (resumed > 0)
    file_->add(tf_record(key(1, 1) + raw(time) + key(2, 0) + varint(static_cast<std::uint64_t>(resumed + 1)) +
                         text_field(7, key(1, 0) + varint(1))));
}

std::string EventFile::add(std::int64_t step, const std::vector<std::pair<std::string, float>>& scalars) {
  return file_->add(tf_record(scalar_event(now(), step, scalars)));
}

}  // namespace meshloom::trainer
