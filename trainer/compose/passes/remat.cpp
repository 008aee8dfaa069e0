#include "trainer/compose/passes/remat.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "trainer/compose/graph.h"
#include "trainer/compose/rule_pattern.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Phase;
using kernels::Program;
using kernels::ValueId;

class Rematerializer {
 public:
  Rematerializer(Program& program, const kernels::Catalog& catalog, const std::vector<RematRule>& rules)
      : program_(program), rules_(rules), matched_(rules.size(), 0), graph_(program) {
    for (std::size_t i = 0; i < rules.size(); ++i)
      matchers_.emplace_back(rules[i].tag, "remat rule " + std::to_string(i + 1));
    for (const Call& call : program.calls) regions_.push_back(region_of(call.path));
    group(catalog);
  }

  void run() {
    find_saved();
    clone_needed();
    emit();
    remove_dead_calls(program_);
  }

  const std::vector<char>& matched() const { return matched_; }

 private:
  const Call& call(int index) const { return program_.calls[at(index)]; }
  bool forward(int index) const { return call(index).phase == Phase::forward; }

  // Values that are decided together share a group: views of one storage, outputs of one call.
  void group(const kernels::Catalog& catalog) {
    group_ = view_roots(program_, catalog);
    for (const Call& call : program_.calls)
      if (!catalog.contract(call.op).view)
        for (ValueId id : call.outputs) group_[at(id)] = call.outputs[0];
    // For a view of a second output, the group of its root is that of the first output.
    for (ValueId& id : group_) id = group_[at(id)];
  }

  void find_saved() {
    saved_.assign(program_.values.size(), 1);
    std::map<ValueId, std::vector<ValueId>> members;
    for (std::size_t v = 0; v < group_.size(); ++v)
      if (graph_.definition[v] >= 0 && forward(graph_.definition[v]))
        members[group_[v]].push_back(static_cast<ValueId>(v));
    for (const auto& [group, values] : members) {
      bool fixed = graph_.definition_of(group) == kInputDefinition;
      bool read_later = false;
      std::set<std::string> tags;
      for (ValueId id : values) {
        const std::string& home = regions_[at(graph_.definition_of(id))];
        fixed = fixed || home.empty() || graph_.outlives_program(id);
        for (int reader : graph_.readers_of(id)) {
          if (forward(reader))
            fixed = fixed || regions_[at(reader)] != home;
          else
            read_later = true;
        }
        if (!program_.value(id).tag.empty()) tags.insert(program_.value(id).tag);
      }
      if (fixed) continue;
      if (tags.empty()) tags.insert("");
      const bool keep = decide(tags, read_later);
      for (ValueId id : values) saved_[at(id)] = keep;
    }
  }

  bool decide(const std::set<std::string>& tags, bool counts) {
    for (std::size_t i = 0; i < rules_.size(); ++i)
      for (const std::string& tag : tags)
        if (matchers_[i](tag)) {
          if (counts) matched_[i] = 1;
          return rules_[i].save;
        }
    return true;
  }

  // Finds the forward calls to recompute: all that lead from saved values to values that backward calls read.
  void clone_needed() {
    cloned_.assign(program_.calls.size(), 0);
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      if (forward(static_cast<int>(i))) continue;
      for (ValueId id : program_.calls[i].inputs)
        if (!saved_[at(id)]) need(id, static_cast<int>(i));
    }
    for (std::size_t i = program_.calls.size(); i-- > 0;)
      if (cloned_[i])
        for (ValueId id : program_.calls[i].inputs)
          if (!saved_[at(id)]) {
            const int definition = graph_.definition_of(id);
            cloned_[at(definition)] = 1;
            // Values that another region reads are saved, so producer and reader are in one region.
          }
  }

  void need(ValueId id, int reader) {
    const int definition = graph_.definition_of(id);
    cloned_[at(definition)] = 1;
    const auto [it, fresh] = first_use_.emplace(regions_[at(definition)], reader);
    if (!fresh) it->second = std::min(it->second, reader);
  }

  void emit() {
    // Usually the region's first backward call is the first reader or comes before it.
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      const auto it = first_use_.find(regions_[i]);
      if (it != first_use_.end() && program_.calls[i].phase == Phase::backward)
        it->second = std::min(it->second, static_cast<int>(i));
    }
    std::map<int, std::vector<std::string>> starting;  // call -> regions that are recomputed before it
    for (const auto& [region, index] : first_use_) starting[index].push_back(region);

    std::vector<ValueId> again(program_.values.size());
    std::iota(again.begin(), again.end(), 0);
    std::vector<Call> calls;
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      const auto here = starting.find(static_cast<int>(i));
      if (here != starting.end())
        for (const std::string& region : here->second)
          for (std::size_t f = 0; f < program_.calls.size(); ++f)
            if (cloned_[f] && regions_[f] == region) calls.push_back(clone(program_.calls[f], again));
      Call call = program_.calls[i];
      if (call.phase != Phase::forward)
        for (ValueId& id : call.inputs)
          if (at(id) < again.size()) id = again[at(id)];
      calls.push_back(std::move(call));
    }
    program_.calls = std::move(calls);
  }

  Call clone(Call call, std::vector<ValueId>& again) {
    call.phase = Phase::recompute;
    for (ValueId& id : call.inputs) id = again[at(id)];
    for (ValueId& id : call.outputs) {
      const ValueId copy = static_cast<ValueId>(program_.values.size());
      program_.values.push_back(kernels::Value(program_.value(id)));
      // A saved output of the same call keeps its first copy.
      if (!saved_[at(id)]) again[at(id)] = copy;
      id = copy;
    }
    return call;
  }

  Program& program_;
  const std::vector<RematRule>& rules_;
  std::vector<char> matched_;
  std::vector<Matcher> matchers_;
  Graph graph_;
  std::vector<std::string> regions_;  // by call
  std::vector<ValueId> group_;        // by value
  std::vector<char> saved_;           // by value
  std::vector<char> cloned_;          // by call
  std::map<std::string, int> first_use_;
};

}  // namespace

std::string region_of(const std::string& path) {
  for (std::size_t begin = 0; begin < path.size();) {
    std::size_t end = path.find('/', begin);
    if (end == std::string::npos) end = path.size();
    if (end > begin && std::isdigit(static_cast<unsigned char>(path[end - 1]))) return path.substr(0, end);
    begin = end + 1;
  }
  return "";
}

Program rematerialize(Program program, const kernels::Catalog& catalog, const std::vector<RematRule>& rules,
                      std::vector<char>* matched) {
  std::vector<RematRule> all = rules;
  if (std::any_of(program.values.begin(), program.values.end(),
                  [](const kernels::Value& value) { return value.tag.starts_with(kRecomputed); }))
    all.push_back({"recompute\\..*", false});
  Rematerializer pass(program, catalog, all);
  if (!all.empty()) pass.run();
  if (matched)
    matched->assign(pass.matched().begin(),
                    pass.matched().begin() + static_cast<std::ptrdiff_t>(rules.size()));
  return program;
}

}  // namespace meshloom::trainer
