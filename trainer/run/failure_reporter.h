// What goes wrong again and again while a run goes on, said once.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

namespace meshloom::trainer {

class FailureReporter {
 public:
  explicit FailureReporter(std::function<void(const std::string&)> note) : note_(std::move(note)) {}

  // `what` is tried again later; `trouble` is why it failed now, "" = it went well. Tells of the first failure, and of the
  // first success after it.
  void report(const std::string& what, const std::string& trouble) {
    bool& in_trouble = in_trouble_[what];
    if (!trouble.empty() && !in_trouble)
      note_(what + ": " + trouble + "; the run goes on, and this is tried again");
    if (trouble.empty() && in_trouble) note_(what + ": went well again");
    in_trouble = !trouble.empty();
  }
  bool has(const std::string& what) const {
    const auto found = in_trouble_.find(what);
    return found != in_trouble_.end() && found->second;
  }

 private:
  std::function<void(const std::string&)> note_;
  std::map<std::string, bool> in_trouble_;
};

}  // namespace meshloom::trainer
