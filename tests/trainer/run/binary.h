// Runs the built program from the command line.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace meshloom::tests {

struct Outcome {
  int code = 0;
  std::string out, err;
  // Lines of stderr that are not notes.
  std::vector<std::string> errors() const;
};

// Runs a command of the shell.
Outcome shell(const std::string& command);

// Runs `meshloom ARGUMENTS` through the shell, in an empty environment but for what the tests were given;
// `before` goes in front ("ulimit -f 100;", "VK_DRIVER_FILES=/none").
Outcome meshloom(const std::string& arguments, const std::string& before = {});

// A directory that is gone when the test is.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  std::string path(const std::string& name = {}) const { return name.empty() ? root_ : root_ + "/" + name; }
  // Writes a file and gives its path.
  std::string file(const std::string& name, const std::string& text) const;

 private:
  std::string root_;
};

std::string read_text(const std::string& path);
// (step, loss) of every line of a run's metrics.jsonl.
std::vector<std::pair<int, double>> losses(const std::string& run);
// English-like text, always the same: enough for windows and something to learn.
std::string sample_text(std::size_t bytes);

}  // namespace meshloom::tests
