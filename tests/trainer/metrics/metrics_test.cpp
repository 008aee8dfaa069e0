#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/trainer/run/binary.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/json_lines.h"

namespace meshloom::trainer {
namespace {

TEST(Metrics, LossesKeepTheirBits) {
  StepRecord record;
  record.step = 3;
  record.loss = 5.5451774444795623 / 3;
  record.eval_loss = 1.0 / 3;
  const auto json = nlohmann::json::parse(to_json(record));
  EXPECT_EQ(json["loss"].get<double>(), record.loss);
  EXPECT_EQ(json["eval_loss"].get<double>(), *record.eval_loss);
  for (const char* key : {"step", "tokens_per_s", "mfu", "peak_bytes", "seconds"})
    EXPECT_TRUE(json.contains(key));
  record.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(nlohmann::json::parse(to_json(record))["loss"].is_null());
}

TEST(Metrics, AResumeTruncates) {
  const tests::Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  {
    JsonLines lines(path, 0);
    for (std::int64_t step = 1; step <= 5; ++step) {
      StepRecord record;
      record.step = step;
      lines.add(to_json(record));
    }
  }
  scratch.file("metrics.jsonl", tests::read_text(path) + "{\"step\": 6, \"lo");
  { JsonLines lines(path, 3); }
  const std::string text = tests::read_text(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(text.find("\"step\": 4"), std::string::npos);
}

TEST(Metrics, EventFilesAreFramed) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // the check value of CRC-32C
  const std::string record = tf_record("abc");
  EXPECT_EQ(record.size(), 8u + 4 + 3 + 4);
  const std::string event = scalar_event(1.0, 300, {{"x", 2.0f}});
  EXPECT_EQ(event,
            std::string("\x09\0\0\0\0\0\0\xf0\x3f\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01x\x15\0\0\0\x40", 24));
}

}  // namespace
}  // namespace meshloom::trainer
