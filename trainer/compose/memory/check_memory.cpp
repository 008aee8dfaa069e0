// Replays every program over the plan's byte ranges and tracks which value owns each byte.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "hal/error.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/memory/memory.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Program;
using kernels::ValueId;

// The owners of the bytes of one block, as disjoint ranges: begin -> (end, owner).
class Bytes {
 public:
  void write(std::int64_t begin, std::int64_t end, ValueId owner) {
    cut(begin);
    cut(end);
    owners_.erase(owners_.lower_bound(begin), owners_.lower_bound(end));
    owners_[begin] = {end, owner};
  }
  bool holds(std::int64_t begin, std::int64_t end, ValueId owner) const {
    auto it = owners_.upper_bound(begin);
    if (it == owners_.begin()) return false;
    for (--it; begin < end; ++it) {
      if (it == owners_.end() || it->first > begin || it->second.first <= begin || it->second.second != owner)
        return false;
      begin = it->second.first;
    }
    return true;
  }

 private:
  void cut(std::int64_t where) {
    auto it = owners_.upper_bound(where);
    if (it == owners_.begin()) return;
    --it;
    const auto [end, owner] = it->second;
    if (it->first >= where || end <= where) return;
    it->second.first = where;
    owners_[where] = {end, owner};
  }
  std::map<std::int64_t, std::pair<std::int64_t, ValueId>> owners_;
};

bool overlap(const Placement& a, const Placement& b) {
  return a.block == b.block && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

class Replay {
 public:
  Replay(const Plan& plan, const PlannedProgram& planned, const kernels::Catalog& catalog)
      : plan_(plan),
        planned_(planned),
        program_(planned.program),
        catalog_(catalog),
        roots_(view_roots(program_, catalog)),
        blocks_(plan.blocks.size()) {
    for (const auto& [name, place] : plan.persistent) starts_.emplace(place.block, place.offset);
  }

  void run() {
    for (ValueId id : program_.inputs) {
      const auto persistent = plan_.persistent.find(program_.value(id).name);
      const Placement& place = placed(id);
      if (persistent == plan_.persistent.end() || persistent->second.block != place.block ||
          persistent->second.offset != place.offset)
        fail("an input must lie where its name says", id);
      own(id);
    }
    for (std::size_t i = 0; i < program_.calls.size(); ++i)
      if (program_.calls[i].starts >= 0) starting_[program_.calls[i].starts].push_back(i);
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      for (const std::size_t collective : starting_[static_cast<int>(i)])
        for (ValueId id : program_.calls[collective].inputs)
          expect(id, when(collective) + ", when it starts");
      call(i);
    }
    std::vector<ValueId> overwritten;
    for (const kernels::Donation& donation : program_.donations) {
      overwritten.push_back(donation.input);
      if (placed(donation.input).block != placed(donation.output).block ||
          placed(donation.input).offset != placed(donation.output).offset)
        fail("a donated output must lie in its input's storage", donation.output);
      expect(donation.output, "at the end");
    }
    for (ValueId id : program_.outputs) expect(id, "at the end");
    for (ValueId id : program_.inputs)
      if (std::find(overwritten.begin(), overwritten.end(), id) == overwritten.end())
        expect(id, "at the end");
  }

 private:
  [[noreturn]] void fail(const std::string& rule, ValueId id, const std::string& when = {}) const {
    const std::string& name = program_.value(id).name;
    throw hal::Error("memory plan of program '" + program_.name + "'" + (when.empty() ? "" : ", " + when),
                     rule, "%" + std::to_string(id) + (name.empty() ? "" : " '" + name + "'"));
  }

  const Placement& placed(ValueId id) const {
    const Placement& place = planned_.placements.at(at(id));
    if (place.block < 0 || at(place.block) >= plan_.blocks.size() || place.offset < 0 ||
        place.offset % kPlacementAlignment != 0 || place.bytes != program_.value(id).type.bytes() ||
        place.offset + place.bytes > plan_.blocks[at(place.block)].bytes)
      fail("every value must have a place within a block", id);
    if (plan_.blocks[at(place.block)].memory != program_.value(id).memory)
      fail("every value must lie in its kind of memory", id);
    if (plan_.blocks[at(place.block)].persistent && !starts_.count({place.block, place.offset}))
      fail("persistent blocks must hold only persistent values", id);
    return place;
  }

  void own(ValueId id) {
    const Placement& place = placed(id);
    blocks_[at(place.block)].write(place.offset, place.offset + place.bytes, roots_[at(id)]);
  }

  void expect(ValueId id, const std::string& when) const {
    const Placement& place = placed(id);
    if (!blocks_[at(place.block)].holds(place.offset, place.offset + place.bytes, roots_[at(id)]))
      fail("a value that is still needed must not be overwritten", id, when);
  }

  std::string when(std::size_t index) const {
    const Call& call = program_.calls[index];
    return "call " + std::to_string(index) + " " + call.op + " in " + call.path;
  }

  void call(std::size_t index) {
    const Call& call = program_.calls[index];
    const std::string when = this->when(index);
    if (call.starts < 0)  // else it has read them
      for (ValueId id : call.inputs) expect(id, when);
    const kernels::Contract& contract = catalog_.contract(call.op);
    if (contract.view) {
      expect(call.outputs[0], when);
      return;
    }
    const kernels::CallTypes types(program_, call);
    const auto pairs = contract.in_place(types.view(call));
    const Placement& workspace = planned_.workspaces.at(index);
    if (call.choice && call.choice->workspace_bytes > 0) {
      if (workspace.block < 0 || workspace.bytes < call.choice->workspace_bytes ||
          workspace.offset + workspace.bytes > plan_.blocks.at(at(workspace.block)).bytes)
        fail("a workspace must have a place", call.outputs[0], when);
      for (const std::vector<ValueId>* ids : {&call.inputs, &call.outputs})
        for (ValueId id : *ids)
          if (overlap(workspace, placed(id))) fail("a workspace must not overlap anything", id, when);
      blocks_[at(workspace.block)].write(workspace.offset, workspace.offset + workspace.bytes,
                                         kernels::kNoValue);
    }
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      const Placement& out = placed(call.outputs[o]);
      for (std::size_t k = 0; k < call.inputs.size() && call.starts < 0; ++k) {
        const Placement& in = placed(call.inputs[k]);
        if (!overlap(in, out)) continue;
        const bool allowed = std::find(pairs.begin(), pairs.end(),
                                       std::pair(static_cast<int>(k), static_cast<int>(o))) != pairs.end();
        if (!allowed || in.offset != out.offset || in.bytes != out.bytes)
          fail("an output may share storage with an input only where the contract allows it", call.outputs[o],
               when);
      }
      for (std::size_t other = 0; other < o; ++other)
        if (overlap(placed(call.outputs[other]), out))
          fail("outputs of one call must not overlap", call.outputs[o], when);
    }
    for (ValueId id : call.outputs) own(id);
  }

  const Plan& plan_;
  const PlannedProgram& planned_;
  const Program& program_;
  const kernels::Catalog& catalog_;
  std::vector<ValueId> roots_;
  std::vector<Bytes> blocks_;
  std::map<int, std::vector<std::size_t>> starting_;  // by call: the collectives that start in front of it
  std::set<std::pair<int, std::int64_t>> starts_;     // of persistent values
};

}  // namespace

void check_memory(const Plan& plan, const kernels::Catalog& catalog) {
  std::vector<std::pair<std::string, Placement>> all(plan.persistent.begin(), plan.persistent.end());
  for (const auto& [name, place] : plan.host.copies) all.emplace_back("the copy of " + name, place);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.block, a.second.offset) < std::pair(b.second.block, b.second.offset);
  });
  for (std::size_t i = 1; i < all.size(); ++i)
    if (overlap(all[i - 1].second, all[i].second))
      throw hal::Error("memory plan", "persistent values must not overlap",
                       "'" + all[i - 1].first + "' and '" + all[i].first + "'");
  for (const auto& [name, place] : plan.persistent)
    if (!plan.blocks.at(at(place.block)).persistent)
      throw hal::Error("memory plan", "persistent values must lie in persistent blocks", "'" + name + "'");
  for (const auto& [step, planned] : plan.steps.programs) Replay(plan, planned, catalog).run();
}

}  // namespace meshloom::trainer
