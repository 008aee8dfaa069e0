// Shared by the tests of inputs of examples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/message_of.h"
#include "trainer/data/dataset.h"
#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

using tests::message_of;

// Rows of `sequence` bytes.
template <typename Config>
std::unique_ptr<Dataset> open(Config config, const std::string& file, std::int64_t sequence) {
  static const std::unique_ptr<Tokenizer> bytes = byte_tokenizer();
  config.files = {file};
  config.check();
  return config.open(*bytes, 256, sequence);
}

// Tokens as text; '.' where a target is ignored, '$' for the end of a text and for padding.
inline std::string text_of(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += id < 0 ? '.' : id == 0 ? '$' : static_cast<char>(id);
  return text;
}

}  // namespace meshloom::trainer
