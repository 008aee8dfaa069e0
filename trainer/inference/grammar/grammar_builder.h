// Builds a grammar of rules, each written as a nondeterministic automaton that is made deterministic (Rabin and Scott, 1959).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/inference/grammar/grammar.h"

namespace meshloom::trainer {

class GrammarBuilder {
 public:
  using State = std::uint32_t;
  using Rule = std::uint32_t;
  static constexpr std::size_t kStates = 100'000;   // before and after they are made deterministic
  static constexpr std::size_t kSteps = 5'000'000;  // of compiling, below a second
  static constexpr std::int64_t kNoBound = -1;

  // `where` is the place of errors. All functions throw Error for more than kStates states.
  explicit GrammarBuilder(std::string where) : where_(std::move(where)) {}

  // The body of a rule leads from begin() to end(). Nothing may lead to begin().
  Rule add_rule(std::string name);
  State begin(Rule rule) const { return rules_[rule].begin; }
  State end(Rule rule) const { return rules_[rule].end; }

  State add_state();
  void empty(State from, State to) { states_[from].empties.push_back(to); }
  void bytes(State from, State to, unsigned char low, unsigned char high) {
    states_[from].bytes.push_back({low, high, to});
  }
  void call(State from, State to, Rule rule) { states_[from].calls.push_back({rule, to}); }

  // These return the state behind what they append.
  State literal(State from, std::string_view text);
  State called(State from, Rule rule);
  // `part` appends one of the parts to a state.
  using Part = std::function<State(State)>;
  State any_of(State from, const std::vector<Part>& parts);
  State optional(State from, const Part& part);
  State repeat(State from, std::int64_t min, std::int64_t max, const Part& part);

  // Throws Error when a rule begins with itself, when no text can match, and beyond a limit.
  SharedGrammar build(Rule start) const;

 private:
  friend class GrammarCompiler;
  struct Node {
    std::vector<State> empties;
    std::vector<Grammar::ByteEdge> bytes;
    std::vector<std::pair<Rule, State>> calls;
  };
  struct Named {
    std::string name;
    State begin, end;
  };
  std::string where_;
  std::vector<Node> states_;
  std::vector<Named> rules_;
};

}  // namespace meshloom::trainer
