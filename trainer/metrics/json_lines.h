// Files of lines, each a JSON object with the step that it is of: DIR/metrics.jsonl has one per step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/io/append_file.h"

namespace meshloom::trainer {

struct StepRecord {
  std::int64_t step = 0;  // steps done, from 1
  double loss = 0;        // nats per token, mean over the step's tokens
  std::optional<double> eval_loss;
  std::optional<double> reward;       // where the model writes answers: the mean of this step's
  std::optional<double> eval_reward;  // that of answers to held-out prompts
  double learning_rate = 0, gradient_norm = 0;
  std::optional<double> loss_scale;          // where the loss is scaled (f16)
  std::optional<double> packing_efficiency;  // where documents are packed: the fraction that is no padding
  bool skipped = false;                      // the gradient was not finite: nothing was updated
  std::int64_t tokens = 0;                   // of this step
  double seconds = 0, tokens_per_s = 0;
  double mfu = 0;  // model FLOPs / (seconds * ceiling), see run/ceiling.h; 0 when no ceiling is known
  std::int64_t peak_bytes = 0;
  int device_losses = 0;  // how often the device was lost and opened again since the step before
  std::vector<std::pair<std::string, double>> summaries;  // the model's summaries, by path
};

// The file of the answers that a run learns from (trainer/rollout/rollout_lines.h).
constexpr const char* kRolloutLines = "rollouts.jsonl";

// A line of metrics.jsonl without its end. Losses have 17 significant digits; a number that is not finite becomes null.
std::string to_json(const StepRecord& record);

// Appends to the file. Every line is handed to the system when it is added.
class JsonLines {
 public:
  // Keeps the lines of steps up to `resumed` and drops all others. Throws Error.
  JsonLines(const std::string& path, std::int64_t resumed);
  // Both return "", or why lines are not in the file yet: see AppendFile.
  std::string add(const std::string& line) { return file_->add(line + "\n"); }
  std::string sync() { return file_->sync(); }

 private:
  std::unique_ptr<AppendFile> file_;
};

}  // namespace meshloom::trainer
