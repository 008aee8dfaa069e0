// The files of lines and events in a run's directory, which grow with every step. A line that cannot be written is reported, waits in
// memory and is tried again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/metrics/event_file.h"
#include "trainer/metrics/failure_reporter.h"
#include "trainer/metrics/json_lines.h"

namespace meshloom::trainer {

class RunRecords {
 public:
  // Which files there are besides metrics.jsonl and the event file.
  struct Kinds {
    bool rollouts = false;       // rollouts.jsonl: the answers that a step learns from
    bool eval_rollouts = false;  // eval_rollouts.jsonl: those to held-out prompts
  };
  // Keeps what the files have of steps up to `resumed`. Throws Error.
  RunRecords(const std::string& directory, std::int64_t resumed, Kinds kinds, FailureReporter& failures);

  // Adds a step that was not added yet. The rollouts are JSON objects, one for each answer.
  void add(const StepRecord& record, const std::vector<std::string>& rollouts,
           const std::vector<std::string>& eval_rollouts);
  // Returns when all that could be written is on the disk.
  void sync();
  // Says of each file that could not be written to its end that what is missing is lost.
  void note_lost(const std::function<void(const std::string&)>& note) const;

 private:
  struct Lines {
    std::string name;
    JsonLines file;
  };
  void add_lines(std::optional<Lines>& lines, const std::vector<std::string>& added);

  FailureReporter& failures_;
  std::optional<Lines> metrics_, rollouts_, eval_rollouts_;
  EventFile events_;
};

}  // namespace meshloom::trainer
