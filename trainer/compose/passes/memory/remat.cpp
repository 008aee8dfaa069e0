#include "trainer/compose/passes/memory/remat.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "kernels/transfer/transfer.h"
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
  Rematerializer(Program& program, const kernels::Catalog& catalog, const std::vector<RematRule>& rules,
                 const OffloadLimits& limits)
      : program_(program), rules_(rules), limits_(limits), matched_(rules.size(), 0), graph_(program) {
    for (std::size_t i = 0; i < rules.size(); ++i)
      matchers_.emplace_back(rules[i].tag, "remat rule " + std::to_string(i + 1));
    for (const Call& call : program.calls) regions_.push_back(region_of(call.path));
    group(catalog);
  }

  void run() {
    find_saved();
    clone_needed();
    find_offloaded();
    emit();
    remove_dead_calls(program_);
  }

  const std::vector<char>& matched() const { return matched_; }

 private:
  const Call& call(int index) const { return program_.calls[at(index)]; }
  bool forward(int index) const { return call(index).phase == Phase::forward; }

  // Values that are decided together share a group: views of one storage, outputs of one call.
  void group(const kernels::Catalog& catalog) {
    group_ = roots_ = view_roots(program_, catalog);
    for (const Call& call : program_.calls)
      if (!catalog.contract(call.op).view)
        for (ValueId id : call.outputs) group_[at(id)] = call.outputs[0];
    // For a view of a second output, the group of its root is that of the first output.
    for (ValueId& id : group_) id = group_[at(id)];
  }

  void find_saved() {
    saved_.assign(program_.values.size(), 1);
    offloaded_.assign(program_.values.size(), 0);
    std::map<ValueId, std::vector<ValueId>> members;
    for (std::size_t v = 0; v < group_.size(); ++v)
      if (graph_.definition[v] >= 0 && forward(graph_.definition[v]))
        members[group_[v]].push_back(static_cast<ValueId>(v));
    for (const auto& [group, values] : members) {
      bool kept = graph_.definition_of(group) == kInputDefinition;
      bool crosses = false;  // so that it cannot be recomputed with its region
      bool read_later = false;
      std::set<std::string> tags;
      for (ValueId id : values) {
        const std::string& home = regions_[at(graph_.definition_of(id))];
        kept = kept || graph_.outlives_program(id);
        crosses = crosses || home.empty();
        for (int reader : graph_.readers_of(id)) {
          if (forward(reader))
            crosses = crosses || regions_[at(reader)] != home;
          else
            read_later = true;
        }
        if (!program_.value(id).tag.empty()) tags.insert(program_.value(id).tag);
      }
      if (kept) continue;
      if (tags.empty()) tags.insert("");
      const RematPolicy policy = decide(tags, read_later, crosses);
      for (ValueId id : values) {
        saved_[at(id)] = policy != RematPolicy::recompute;
        offloaded_[at(id)] = policy == RematPolicy::offload;
      }
    }
  }

  RematPolicy decide(const std::set<std::string>& tags, bool counts, bool crosses) {
    for (std::size_t i = 0; i < rules_.size(); ++i)
      for (const std::string& tag : tags)
        if (matchers_[i](tag)) {
          if (crosses && rules_[i].policy == RematPolicy::recompute) return RematPolicy::save;
          if (counts) matched_[i] = 1;
          return rules_[i].policy;
        }
    return RematPolicy::save;
  }

  // Leaves of the offloaded values those that go to the host: no views, but what they are views of.
  void find_offloaded() {
    const std::vector<char> wanted = std::move(offloaded_);
    offloaded_.assign(program_.values.size(), 0);
    std::map<ValueId, int> last,
        next;  // by root: the last reader before the backward pass, and the first in it
    const auto first = [&](ValueId id, int index) {
      const auto [it, fresh] = next.emplace(roots_[at(id)], index);
      if (!fresh) it->second = std::min(it->second, index);
    };
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      const int index = static_cast<int>(i);
      const auto start = first_use_.find(regions_[i]);
      for (ValueId id : program_.calls[i].inputs) {
        if (!wanted[at(id)]) continue;
        if (forward(index))
          last[roots_[at(id)]] = index;
        else
          first(id, index);
        if (cloned_[i] && start != first_use_.end()) first(id, start->second);
      }
    }
    for (const auto& [root, index] : next) {
      const kernels::TensorType& type = program_.value(root).type;
      const int since = std::max(graph_.definition_of(root), last.count(root) ? last.at(root) : 0);
      offloaded_[at(root)] =
          type.bytes() >= limits_.bytes && kernels::transferable(type) && index - since >= limits_.calls;
    }
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
            if (cloned_[f] && regions_[f] == region) {
              for (ValueId id : program_.calls[f].inputs) fetch(id, again, calls);
              calls.push_back(clone(program_.calls[f], again));
            }
      Call call = program_.calls[i];
      if (call.phase != Phase::forward)
        for (ValueId& id : call.inputs)
          if (at(id) < again.size()) {
            fetch(id, again, calls);
            id = again[at(id)];
          }
      const std::vector<ValueId> defined = call.outputs;
      calls.push_back(std::move(call));
      for (ValueId id : defined)
        if (at(id) < offloaded_.size() && offloaded_[at(id)])
          on_host_[id] = move(id, hal::MemoryKind::host, Phase::forward, calls);
    }
    program_.calls = std::move(calls);
  }

  // Brings an offloaded value back, or a view of one, unless it is there already.
  void fetch(ValueId id, std::vector<ValueId>& again, std::vector<Call>& calls) {
    const ValueId root = roots_[at(id)];
    if (!offloaded_[at(root)] || again[at(id)] != id) return;
    if (id == root) {
      again[at(id)] = move(on_host_.at(id), hal::MemoryKind::device, Phase::backward, calls);
      return;
    }
    const int definition = graph_.definition_of(id);
    if (!forward(definition)) return;  // a view of the backward pass, which reads what was fetched
    const Call view = call(definition);
    fetch(view.inputs[0], again, calls);
    Call copy = clone(view, again);
    again[at(id)] = copy.outputs[0];
    calls.push_back(std::move(copy));
  }

  ValueId move(ValueId id, hal::MemoryKind memory, Phase phase, std::vector<Call>& calls) {
    const std::string path = paths_.count(id) ? paths_.at(id) : path_of(id);
    const ValueId copy = append_transfer(program_, id, memory, phase, path, calls);
    program_.value(copy).name.clear();
    program_.value(copy).tag.clear();
    paths_[copy] = path;
    return copy;
  }
  std::string path_of(ValueId id) const { return call(graph_.definition_of(id)).path; }

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
  OffloadLimits limits_;
  std::vector<char> matched_;
  std::vector<Matcher> matchers_;
  Graph graph_;
  std::vector<std::string> regions_;  // by call
  std::vector<ValueId> roots_;        // by value: what it is a view of
  std::vector<ValueId> group_;        // by value
  std::vector<char> saved_;           // by value
  std::vector<char> offloaded_;       // by value
  std::map<ValueId, ValueId> on_host_;
  std::map<ValueId, std::string> paths_;  // of the calls that moved these values
  std::vector<char> cloned_;              // by call
  std::map<std::string, int> first_use_;
};

}  // namespace

std::string_view to_string(RematPolicy policy) {
  return policy == RematPolicy::save ? "save" : policy == RematPolicy::recompute ? "recompute" : "offload";
}

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
                      std::vector<char>* matched, const OffloadLimits& limits) {
  std::vector<RematRule> all = rules;
  if (std::any_of(program.values.begin(), program.values.end(),
                  [](const kernels::Value& value) { return value.tag.starts_with(kRecomputed); }))
    all.push_back({"recompute\\..*", RematPolicy::recompute});
  Rematerializer pass(program, catalog, all, limits);
  if (!all.empty()) pass.run();
  if (matched)
    matched->assign(pass.matched().begin(),
                    pass.matched().begin() + static_cast<std::ptrdiff_t>(rules.size()));
  return program;
}

}  // namespace meshloom::trainer
