// Where a grammar can be after some bytes: a set of stacks, each with a state on top and below it the states that go on when
// rules have ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trainer/inference/grammar/grammar.h"

namespace meshloom::trainer {

// Of one thread.
class Stacks {
 public:
  using Frame = std::uint32_t;
  static constexpr Frame kBottom = UINT32_MAX;       // nothing is below
  static constexpr Frame kUnknown = UINT32_MAX - 1;  // what is below is not known
  static constexpr std::size_t kMaxStacks = 256;     // stacks at once
  struct Top {
    Grammar::State state;  // one that reads bytes
    Frame below;
    bool operator==(const Top&) const = default;
  };
  struct Set {
    std::vector<Top> tops;
    bool complete = false;  // the text may end here
    bool unknown = false;   // what is not known goes on here
    bool empty() const { return tops.empty() && !complete && !unknown; }
    void clear() {
      tops.clear();
      complete = unknown = false;
    }
  };

  // The grammar must outlive this.
  explicit Stacks(const Grammar& grammar) : grammar_(grammar) {}

  // Adds what can read the next byte when a rule is in `state`. Throws Error for more than kMaxStacks stacks.
  void enter(Grammar::State state, Frame below, Set& set);
  // What is below `frame` goes on.
  void resume(Frame frame, Set& set);
  // `to` becomes what follows `from` after a byte. They must not be the same.
  void step(const Set& from, unsigned char byte, Set& to);

  // Steps of work since the last call of set_work(0). Throws Error beyond kWork, some tenths of a second.
  static constexpr std::size_t kWork = 20'000'000;
  std::size_t work() const { return work_; }
  void set_work(std::size_t work) { work_ = work; }
  void add_work(std::size_t steps);

  // Frames that were made since mark() are forgotten by rewind().
  std::size_t mark() const { return frames_.size(); }
  void rewind(std::size_t mark);

 private:
  Frame frame(Grammar::State state, Frame below);

  const Grammar& grammar_;
  std::vector<Top> frames_;
  std::unordered_map<std::uint64_t, Frame> known_;
  std::vector<Top> seen_, pending_;
  std::size_t work_ = 0;
};

}  // namespace meshloom::trainer
