// A training run of a fraction of a second, which tests interrupt and compare with an undisturbed run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {

// Whether all points are tried (scripts/faults) or a few of each kind (the tests).
bool all_faults();

// Of `count` points, those to try: all, or about `few` spread over them.
std::vector<int> chosen_points(int count, int few);

// `tiny` for kSteps steps with a checkpoint after every second one, two of them kept.
class SmallRun {
 public:
  static constexpr int kSteps = 8;

  explicit SmallRun(std::string device = "cpu");

  // The command line without the program's name; the run's folder is `name`.
  std::string arguments(const std::string& name, const std::string& more = {}) const;
  // The same as words, the program's path first.
  std::vector<std::string> words(const std::string& name, const std::string& more = {}) const;
  std::string folder(const std::string& name) const { return scratch_.path(name); }
  // Removes a run's folder.
  void clear(const std::string& name) const;

  // Trains the run that others are compared with. Why there is no such device here, else empty.
  std::string train_whole();
  // The wall time of the whole run, in seconds.
  double seconds() const { return seconds_; }
  // Goes on with a run where it was broken, from its newest checkpoint or from the start where there is none,
  // up to the last step, and expects the losses and the last checkpoint's bytes of the whole run and no
  // checkpoint that is not whole on the way.
  void expect_resumed(const std::string& name, const std::string& what) const;
  // The losses and the last checkpoint's tensors are those of the whole run.
  void expect_same(const std::string& name, const std::string& what) const;
  bool has_checkpoint(const std::string& name) const;
  // The newest checkpoint's step by its folder's name; 0 where there is none.
  int newest_step(const std::string& name) const;

 private:
  std::string device_;
  Scratch scratch_;
  double seconds_ = 0;
};

}  // namespace meshloom::tests
