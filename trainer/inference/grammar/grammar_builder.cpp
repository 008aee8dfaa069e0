#include "trainer/inference/grammar/grammar_builder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

Error too_many_states(const std::string& where) {
  return {where, "must compile to at most " + std::to_string(GrammarBuilder::kStates) + " states", "more"};
}

}  // namespace

GrammarBuilder::Rule GrammarBuilder::add_rule(std::string name) {
  const State first = add_state(), last = add_state();
  rules_.push_back({std::move(name), first, last});
  return static_cast<Rule>(rules_.size() - 1);
}

GrammarBuilder::State GrammarBuilder::add_state() {
  if (states_.size() >= kStates) throw too_many_states(where_);
  states_.emplace_back();
  return static_cast<State>(states_.size() - 1);
}

GrammarBuilder::State GrammarBuilder::literal(State from, std::string_view text) {
  for (const char c : text) {
    const State next = add_state();
    bytes(from, next, static_cast<unsigned char>(c), static_cast<unsigned char>(c));
    from = next;
  }
  return from;
}

GrammarBuilder::State GrammarBuilder::called(State from, Rule rule) {
  const State next = add_state();
  call(from, next, rule);
  return next;
}

GrammarBuilder::State GrammarBuilder::any_of(State from, const std::vector<Part>& parts) {
  const State after = add_state();
  for (const Part& part : parts) {
    const State first = add_state();
    empty(from, first);
    empty(part(first), after);
  }
  return after;
}

GrammarBuilder::State GrammarBuilder::optional(State from, const Part& part) {
  return repeat(from, 0, 1, part);
}

GrammarBuilder::State GrammarBuilder::repeat(State from, std::int64_t min, std::int64_t max,
                                             const Part& part) {
  const auto next = [&](State state) {
    const State first = add_state();  // so that nothing leads back to what stands before
    empty(state, first);
    return part(first);
  };
  for (std::int64_t i = 0; i < min; ++i) from = next(from);
  const State after = add_state();
  if (max == kNoBound) {
    empty(from, after);
    empty(next(after), after);
    return after;
  }
  empty(from, after);
  for (std::int64_t i = min; i < max; ++i) {
    from = next(from);
    empty(from, after);
  }
  return after;
}

// Of one call of build().
class GrammarCompiler {
 public:
  explicit GrammarCompiler(const GrammarBuilder& from) : from_(from) {}

  SharedGrammar compile(GrammarBuilder::Rule start) {
    determinize(start);
    find_nullable();
    refuse_left_recursion();
    find_productive();
    if (!productive_[begins_.at(start)]) throw Error(from_.where_, "must match at least one text", "none");
    return packed(begins_.at(start));
  }

 private:
  using State = GrammarBuilder::State;
  using Rule = GrammarBuilder::Rule;
  using Subset = std::vector<State>;
  struct SubsetHash {
    std::size_t operator()(const Subset& subset) const {
      std::uint64_t hash = subset.size();
      for (const std::uint32_t state : subset) hash = (hash ^ state) * 0x9e3779b97f4a7c15u + (hash >> 29);
      return static_cast<std::size_t>(hash);
    }
  };
  struct Node {
    Rule rule;
    std::vector<Grammar::ByteEdge> bytes;
    std::vector<std::pair<Rule, State>> calls;
    bool ends = false;
  };

  void work(std::size_t steps) {
    if ((steps_ += steps) > GrammarBuilder::kSteps)
      throw Error(from_.where_,
                  "must compile in " + std::to_string(GrammarBuilder::kSteps) + " steps, within a second",
                  "more");
  }

  Subset closure(Subset subset) {
    ++stamp_;
    std::erase_if(subset, [&](State state) { return std::exchange(stamps_[state], stamp_) == stamp_; });
    for (std::size_t i = 0; i < subset.size(); ++i)
      for (const State next : from_.states_[subset[i]].empties) {
        work(1);
        if (stamps_[next] != stamp_) {
          stamps_[next] = stamp_;
          subset.push_back(next);
        }
      }
    // Those that only lead on say nothing more.
    std::erase_if(subset, [&](State state) {
      const auto& node = from_.states_[state];
      return node.bytes.empty() && node.calls.empty() && !is_end(state);
    });
    std::sort(subset.begin(), subset.end());
    work(subset.size());
    return subset;
  }
  bool is_end(State state) const { return state == from_.rules_[rule_].end; }

  // Rules that can be reached.
  void determinize(Rule start) {
    stamps_.assign(from_.states_.size(), 0);
    std::vector<Rule> rules{start};
    begins_[start] = 0;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      rule_ = rules[i];
      std::unordered_map<Subset, State, SubsetHash> known;
      std::vector<const Subset*> subsets;
      const auto first = static_cast<State>(nodes_.size());
      const auto id_of = [&](Subset members) {
        const auto [it, fresh] =
            known.try_emplace(closure(std::move(members)), static_cast<State>(nodes_.size()));
        if (fresh) {
          if (nodes_.size() >= GrammarBuilder::kStates) throw too_many_states(from_.where_);
          nodes_.push_back({rule_, {}, {}, false});
          subsets.push_back(&it->first);
        }
        return it->second;
      };
      begins_[rule_] = id_of({from_.rules_[rule_].begin});
      for (std::size_t k = 0; k < subsets.size(); ++k) {
        const Subset& subset = *subsets[k];
        const auto id = first + static_cast<State>(k);
        nodes_[id].ends =
            std::find_if(subset.begin(), subset.end(), [&](State s) { return is_end(s); }) != subset.end();
        std::vector<Grammar::ByteEdge> edges;
        std::map<Rule, Subset> calls;
        for (const State state : subset) {
          const auto& node = from_.states_[state];
          edges.insert(edges.end(), node.bytes.begin(), node.bytes.end());
          for (const auto& [rule, next] : node.calls) calls[rule].push_back(next);
        }
        add_bytes(id, std::move(edges), id_of);
        for (auto& [rule, next] : calls) {
          if (begins_.try_emplace(rule, 0).second) rules.push_back(rule);
          const State target = id_of(std::move(next));
          nodes_[id].calls.emplace_back(rule, target);
        }
      }
    }
  }

  template <typename IdOf>
  void add_bytes(State id, std::vector<Grammar::ByteEdge> edges, const IdOf& id_of) {
    std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.low < b.low; });
    std::vector<int> cuts;
    for (const auto& edge : edges) {
      cuts.push_back(edge.low);
      cuts.push_back(edge.high + 1);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      Subset next;
      for (const auto& edge : edges) {
        if (edge.low > cuts[c]) break;
        if (edge.high >= cuts[c]) next.push_back(edge.next);
      }
      work(edges.size());
      if (next.empty()) continue;
      const State target = id_of(std::move(next));
      auto& list = nodes_[id].bytes;
      const auto low = static_cast<unsigned char>(cuts[c]),
                 high = static_cast<unsigned char>(cuts[c + 1] - 1);
      if (!list.empty() && list.back().next == target && list.back().high + 1 == low)
        list.back().high = high;
      else
        list.push_back({low, high, target});
    }
  }

  // Calls `each` for the calls that a rule can begin with; returns whether it can be empty.
  template <typename Each>
  bool front(Rule rule, const Each& each) {
    std::vector<State> pending{begins_.at(rule)};
    ++stamp_;
    bool ends = false;
    stamps_of_nodes_.resize(nodes_.size());
    while (!pending.empty()) {
      const State state = pending.back();
      pending.pop_back();
      if (std::exchange(stamps_of_nodes_[state], stamp_) == stamp_) continue;
      ends = ends || nodes_[state].ends;
      work(1 + nodes_[state].calls.size());
      for (const auto& [callee, next] : nodes_[state].calls) {
        each(callee);
        if (nullable_[callee]) pending.push_back(next);
      }
    }
    return ends;
  }

  void find_nullable() {
    nullable_.assign(from_.rules_.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [rule, begin] : begins_)
        if (!nullable_[rule] && front(rule, [](Rule) {})) nullable_[rule] = changed = true;
    }
  }

  void refuse_left_recursion() {
    enum : char { fresh, open, done };
    std::vector<char> colors(from_.rules_.size(), fresh);
    struct Visit {
      Rule rule;
      std::vector<Rule> next;
    };
    for (const auto& [root, begin] : begins_) {
      if (colors[root] != fresh) continue;
      std::vector<Visit> path;
      const auto visit = [&](Rule rule) {
        colors[rule] = open;
        path.push_back({rule, {}});
        front(rule, [&](Rule callee) { path.back().next.push_back(callee); });
      };
      visit(root);
      while (!path.empty()) {
        if (path.back().next.empty()) {
          colors[path.back().rule] = done;
          path.pop_back();
          continue;
        }
        const Rule next = path.back().next.back();
        path.back().next.pop_back();
        if (colors[next] == open) {
          std::string cycle;
          for (std::size_t i = path.size(); i-- > 0;) {
            cycle = from_.rules_[path[i].rule].name + " -> " + cycle;
            if (path[i].rule == next) break;
          }
          throw Error(from_.where_, "a rule must not begin with itself, which is left recursion",
                      shown(cycle + from_.rules_[next].name));
        }
        if (colors[next] == fresh) visit(next);
      }
    }
  }

  // States from which the end of their rule can be reached.
  void find_productive() {
    productive_.assign(nodes_.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = nodes_.size(); i-- > 0;) {
        const Node& node = nodes_[i];
        work(1);
        if (productive_[i]) continue;
        const bool found = node.ends ||
                           std::any_of(node.bytes.begin(), node.bytes.end(),
                                       [&](const auto& edge) { return productive_[edge.next]; }) ||
                           std::any_of(node.calls.begin(), node.calls.end(), [&](const auto& call) {
                             return productive_[begins_.at(call.first)] && productive_[call.second];
                           });
        if (found) productive_[i] = changed = true;
      }
    }
  }

  // Only what can be reached and can end.
  SharedGrammar packed(State begin) {
    auto grammar = std::make_shared<Grammar>();
    std::vector<std::optional<State>> ids(nodes_.size());
    std::vector<State> order;
    const auto id_of = [&](State state) {
      if (!ids[state]) {
        ids[state] = static_cast<State>(order.size());
        order.push_back(state);
      }
      return *ids[state];
    };
    id_of(begin);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Node& node = nodes_[order[i]];
      Grammar::Node out;
      out.ends = node.ends;
      out.first_byte = static_cast<std::uint32_t>(grammar->bytes_.size());
      out.first_call = static_cast<std::uint32_t>(grammar->calls_.size());
      for (const auto& edge : node.bytes)
        if (productive_[edge.next]) grammar->bytes_.push_back({edge.low, edge.high, id_of(edge.next)});
      for (const auto& [rule, next] : node.calls)
        if (productive_[begins_.at(rule)] && productive_[next]) {
          const State first = id_of(begins_.at(rule));  // in this order, whatever the compiler would take
          grammar->calls_.push_back({first, id_of(next)});
        }
      out.bytes = static_cast<std::uint16_t>(grammar->bytes_.size() - out.first_byte);
      out.calls = static_cast<std::uint32_t>(grammar->calls_.size() - out.first_call);
      grammar->states_.push_back(out);
    }
    return grammar;
  }

  const GrammarBuilder& from_;
  Rule rule_ = 0;
  std::size_t steps_ = 0;
  std::uint32_t stamp_ = 0;
  std::vector<std::uint32_t> stamps_, stamps_of_nodes_;
  std::map<Rule, State> begins_;
  std::vector<Node> nodes_;
  std::vector<bool> nullable_, productive_;
};

SharedGrammar GrammarBuilder::build(Rule start) const { return GrammarCompiler(*this).compile(start); }

}  // namespace meshloom::trainer
