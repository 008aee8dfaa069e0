// The user's program that judges answers. It reads a JSON object from each line of its standard input and writes a reward, a number, on a
// line of its standard output, in the same order. It runs as long as the run does.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace meshloom::trainer {

class RewardProgram {
 public:
  // `command` is for /bin/sh, which is started with the first lines. `seconds` is for how long the program may be silent while a reward is
  // awaited. The program is told to write at once, where it is Python's (PYTHONUNBUFFERED).
  RewardProgram(std::string command, double seconds);
  // Ends the program.
  ~RewardProgram();
  RewardProgram(const RewardProgram&) = delete;
  RewardProgram& operator=(const RewardProgram&) = delete;

  // One reward for each line, which has no end of line. Empty where `interrupted` said so, after which nothing more may be asked.
  // Throws Error when the program ends, is silent for too long, or writes anything but a finite number on a line.
  std::vector<double> rewards(std::span<const std::string> lines, const std::function<bool()>& interrupted);

 private:
  void start();
  void send();
  void receive();
  [[noreturn]] void fail(const std::string& rule, const std::string& found) const;
  [[noreturn]] void fail_ended();
  // Ends the program, with all that it started. Returns its status; none = it had not ended by itself.
  std::optional<int> end();
  double reward_of(std::string_view line) const;

  std::string command_;
  double seconds_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string unsent_, received_;
};

}  // namespace meshloom::trainer
