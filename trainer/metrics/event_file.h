// TensorBoard event files: TFRecord frames around Event messages, which are encoded here.
// Source: tensorflow/core/util/event.proto, summary.proto and lib/io/record_writer (the formats only).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/io/append_file.h"

namespace meshloom::trainer {

// CRC-32C (Castagnoli), as in iSCSI.
std::uint32_t crc32c(std::string_view data);
// A TFRecord: length, masked CRC of the length, data, masked CRC of the data.
std::string tf_record(std::string_view data);
// One Event message with scalar summaries.
std::string scalar_event(double wall_time, std::int64_t step,
                         const std::vector<std::pair<std::string, float>>& scalars);

class EventFile {
 public:
  // Creates a file in `directory`; it supersedes the events of later steps than `resumed` in older files.
  // Throws Error.
  EventFile(const std::string& directory, std::int64_t resumed);
  // Both return "", or why events are not in the file yet: see AppendFile.
  std::string add(std::int64_t step, const std::vector<std::pair<std::string, float>>& scalars);
  std::string sync() { return file_->sync(); }

 private:
  std::unique_ptr<AppendFile> file_;
};

}  // namespace meshloom::trainer
