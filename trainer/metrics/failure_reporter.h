// Reports a failure that may repeat while a run goes on once, and its end once.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

namespace meshloom::trainer {

class FailureReporter {
 public:
  explicit FailureReporter(std::function<void(const std::string&)> note) : note_(std::move(note)) {}

  // To be called after each try of `what`; `failure` says why it failed, "" = it succeeded. Notes the first
  // failure, and the first success after it.
  void report(const std::string& what, const std::string& failure) {
    bool& failing = failing_[what];
    if (!failure.empty() && !failing)
      note_(what + ": " + failure + "; the run goes on and will try this again");
    if (failure.empty() && failing) note_(what + ": succeeded again");
    failing = !failure.empty();
  }
  bool has(const std::string& what) const {
    const auto found = failing_.find(what);
    return found != failing_.end() && found->second;
  }

 private:
  std::function<void(const std::string&)> note_;
  std::map<std::string, bool> failing_;
};

}  // namespace meshloom::trainer
