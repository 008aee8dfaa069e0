#include "trainer/execute/lower.h"

#include <algorithm>
#include <map>
#include <string>

#include "hal/error.h"
#include "trainer/execute/horizontal_fusion.h"
#include "trainer/execute/list_scheduler.h"

namespace meshloom::trainer {
namespace {

using hal::Access;
using hal::Binding;

// The byte ranges that were touched since the last barrier, per buffer. Adjacent ranges of one kind are
// merged.
class Touched {
 public:
  bool meets(const Binding& binding) const {
    const auto it = by_buffer_.find(binding.buffer);
    if (it == by_buffer_.end()) return false;
    const std::int64_t begin = binding.offset, end = binding.offset + binding.bytes;
    auto range = it->second.lower_bound(begin);
    if (range != it->second.begin() && std::prev(range)->second > begin) return true;
    return range != it->second.end() && range->first < end;
  }
  void add(const Binding& binding) {
    std::map<std::int64_t, std::int64_t>& ranges = by_buffer_[binding.buffer];
    std::int64_t begin = binding.offset, end = binding.offset + binding.bytes;
    auto it = ranges.lower_bound(begin);
    if (it != ranges.begin() && std::prev(it)->second >= begin) --it;
    while (it != ranges.end() && it->first <= end) {
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = ranges.erase(it);
    }
    ranges[begin] = end;
  }
  void clear() { by_buffer_.clear(); }

 private:
  std::map<const hal::Buffer*, std::map<std::int64_t, std::int64_t>> by_buffer_;  // begin -> end
};

class Barriers {
 public:
  explicit Barriers(hal::CommandList& commands) : commands_(commands) {}

  void before(const std::vector<Binding>& reads, const std::vector<Binding>& writes) {
    const auto conflict = [&](const Binding& b, bool write) {
      return written_.meets(b) || (write && read_.meets(b));
    };
    bool needed = false;
    for (const Binding& b : reads) needed = needed || conflict(b, false);
    for (const Binding& b : writes) needed = needed || conflict(b, true);
    if (needed) {
      commands_.barrier();
      read_.clear();
      written_.clear();
    }
    for (const Binding& b : reads) read_.add(b);
    for (const Binding& b : writes) written_.add(b);
  }

 private:
  hal::CommandList& commands_;
  Touched read_, written_;
};

// nullptr = the device gains nothing by another order.
std::unique_ptr<ReorderedCommands> reordered_for(hal::Device& device, hal::CommandList& into) {
  if (fuses_dispatches(device.info())) return std::make_unique<HorizontalFusion>(device, into);
  if (overlaps_dispatches(device.info())) return std::make_unique<ListScheduler>(device, into);
  return nullptr;
}

}  // namespace

void lower(const PlannedProgram& planned, const kernels::Catalog& catalog,
           const std::vector<std::unique_ptr<hal::Buffer>>& buffers, hal::Device& device,
           hal::CommandList& commands, bool timed, CallRange range) {
  const kernels::Program& program = planned.program;
  const auto bind = [&](const Placement& place, Access access) {
    return Binding{buffers.at(static_cast<std::size_t>(place.block)).get(), place.offset, place.bytes,
                   access};
  };
  const auto bind_value = [&](kernels::ValueId id, Access access) {
    return bind(planned.placements.at(static_cast<std::size_t>(id)), access);
  };
  // Timestamps are of single calls.
  const std::unique_ptr<ReorderedCommands> reordered = timed ? nullptr : reordered_for(device, commands);
  hal::CommandList& into = reordered ? *reordered : commands;
  hal::Device& loader = reordered ? reordered->device() : device;
  Barriers barriers(into);
  if (timed) into.timestamp();
  const auto end = std::min(program.calls.size(), static_cast<std::size_t>(range.last));
  for (auto i = static_cast<std::size_t>(range.first); i < end; ++i) {
    const kernels::Call& call = program.calls[i];
    const kernels::Contract& contract = catalog.contract(call.op);
    if (contract.view || contract.moves) continue;
    if (!call.choice || !call.choice->variant)
      throw hal::Error("lowering '" + program.name + "'", "every call must have a variant",
                       call.op + " in " + call.path);
    std::vector<Binding> inputs, outputs;
    for (kernels::ValueId id : call.inputs) inputs.push_back(bind_value(id, Access::read));
    for (kernels::ValueId id : call.outputs) outputs.push_back(bind_value(id, Access::write));
    Binding workspace;
    std::vector<Binding> writes = outputs;
    if (call.choice->workspace_bytes > 0) {
      workspace = bind(planned.workspaces.at(i), Access::read_write);
      writes.push_back(workspace);
    }
    if (!reordered) barriers.before(inputs, writes);  // else the order brings its own
    const std::string label = (call.path.empty() ? "" : call.path + " ") + call.op;
    const kernels::CallTypes types(program, call);
    into.predict(call.choice->predicted_seconds);
    call.choice->variant->record(
        {types.view(call), *call.choice, loader, into, inputs, outputs, workspace, label});
    if (timed)
      into.timestamp();
    else if (std::binary_search(planned.marks.begin(), planned.marks.end(), static_cast<int>(i)))
      into.mark();
  }
  if (reordered) reordered->finish();
}

}  // namespace meshloom::trainer
