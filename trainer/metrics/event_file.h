// TensorBoard event files: TFRecord frames around hand-encoded Event messages.
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

// CRC-32C (Castagnoli), as iSCSI has it.
std::uint32_t crc32c(std::string_view data);
// length, masked CRC of the length, data, masked CRC of the data.
std::string tf_record(std::string_view data);
// One Event message with scalar summaries.
std::string scalar_event(double wall_time, std::int64_t step,
                         const std::vector<std::pair<std::string, float>>& scalars);

class EventFile {
 public:
  // A new file in `directory`; events of steps after `resumed` in older files there are superseded. Throws Error.
  EventFile(const std::string& directory, std::int64_t resumed);
  // Both give "", or why the file is behind: see AppendFile.
  std::string add(std::int64_t step, const std::vector<std::pair<std::string, float>>& scalars);
  std::string sync() { return file_->sync(); }

 private:
  std::unique_ptr<AppendFile> file_;
};

}  // namespace meshloom::trainer
