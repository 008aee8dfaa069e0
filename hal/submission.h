// How the commands of a list are cut into submissions: drivers stop a submission that runs for long (Windows after 2 s,
// Linux's amdgpu after 2 to 10 s, xe after 10 s), and a display waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace meshloom::hal {

struct SubmissionSettings {
  double budget = 0.05;  // predicted seconds of one submission; 0 = lists are not cut
  double wait_limit =
      30;  // seconds that the host waits for a submission beyond its prediction; 0 = without end

  // By MESHLOOM_SUBMISSION_MS and MESHLOOM_WAIT_SECONDS. Throws Error when one is no number of at least 0.
  static SubmissionSettings from_environment();
  // True where the driver compiles kernels when they first run, so that the time of a first run tells nothing. CPU drivers do.
  bool compiles_late = false;

  // How long the host waits for a submission that was predicted to take `predicted` seconds; < 0 = without end. Ten times as long
  // where it has not run before.
  double limit_of(double predicted, bool ran_before = true) const;
};

// "it was waited for 30 s (MESHLOOM_WAIT_SECONDS)", for a limit that has passed.
std::string waited_text(double limit);

// A copy or fill of so many bytes counts as much as an invocation of a kernel.
constexpr double kBytesPerInvocation = 16;

// What the cutting knows of a command.
struct CommandCost {
  double seconds = 0;       // predicted; 0 = unknown
  std::uint32_t parts = 1;  // equal parts that it can be cut into, such as workgroups along one dimension
  bool alone = false;       // runs in a submission of its own, such as a call of the host
};

// The parts [first, first + count) of a command.
struct Piece {
  std::size_t command = 0;
  std::uint32_t first = 0, count = 1;
};

struct Submission {
  std::vector<Piece> pieces;
  double seconds = 0;  // predicted
};

// In order, every part of every command once. A submission exceeds `budget` only where it is one piece of one part. With a
// budget of 0 only commands that run alone begin a submission.
std::vector<Submission> cut_into_submissions(std::span<const CommandCost> commands, double budget);

// What the host knows of the submissions of a list while they run: shared by the list and by the queue that waits for them.
struct SubmissionLog {
  std::string list;
  struct Entry {
    std::string first, last;  // the labels of its first and last command
    double predicted = 0;
    double measured = -1;  // seconds, in the last run; < 0: not known
    bool ran = false;
  };
  std::vector<Entry> entries;

  // "submission 3 of 17 of list 'train', from 'a' to 'b'"
  std::string describe(std::size_t index) const;
};

// The commands of one list with their predictions, which measurements of its submissions correct.
class ListCosts {
 public:
  // The commands that follow, up to the next call, take `seconds` together.
  void predict(double seconds);
  // Appends a command. `weight` is its share of what was predicted.
  void add(double weight, std::uint32_t parts);
  void add_alone();
  // No command follows.
  void close() { predict(0); }

  const std::vector<CommandCost>& commands() const { return commands_; }
  // Takes the measured seconds of all submissions of one run (< 0: not measured). Returns whether they differ so much from the
  // predictions that the list should be cut anew.
  bool learn(std::span<const Submission> submissions, std::span<const double> seconds, double budget);
  // The same of what a log says after a run.
  bool learn(std::span<const Submission> submissions, const SubmissionLog& log,
             const SubmissionSettings& settings);

 private:
  std::vector<CommandCost> commands_;
  std::vector<double> weights_;  // of the commands that the last prediction is for
  double predicted_ = 0;
  bool learned_ = false;
  bool ran_before_ = false;
};

// `label(i)` is that of command i; "" where it has none.
std::shared_ptr<SubmissionLog> log_of(std::string list, std::span<const Submission> submissions,
                                      const std::function<std::string(std::size_t)>& label);

// One submission that is under way.
struct SubmissionRef {
  std::shared_ptr<SubmissionLog> log;
  std::size_t index = 0;

  std::string describe() const { return log ? log->describe(index) : "a transfer"; }
  double predicted() const { return log ? log->entries[index].predicted : 0; }
  bool ran_before() const { return !log || log->entries[index].ran; }
  void measured(double seconds) const {
    if (!log) return;
    log->entries[index].measured = seconds;
    log->entries[index].ran = true;
  }
};

}  // namespace meshloom::hal
