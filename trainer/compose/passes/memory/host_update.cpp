#include "trainer/compose/passes/memory/host_update.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/elementwise/elementwise.h"
#include "kernels/transfer/transfer.h"
#include "trainer/compose/graph.h"

namespace meshloom::trainer {
namespace {

using hal::MemoryKind;
using kernels::Builder;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;
using kernels::ValueId;

// As the buckets of PyTorch's DistributedDataParallel: enough for a link's full rate, little enough to start early.
constexpr std::int64_t kBucketBytes = std::int64_t{25} << 20;

}  // namespace

void write_host_accumulation(Builder& builder, const std::vector<layers::ParameterInfo>& infos,
                             const std::vector<Tensor>& gradients, const BatchSums& sums, bool single) {
  const auto keep = [&](const std::string& name, Tensor value, Role role,
                        const std::vector<std::string>& axes) {
    Tensor before;
    if (!single) {
      before = builder.input(name, value.type(), role, axes);
      builder.program().value(before.id).memory = MemoryKind::host;
      value = kernels::add(kernels::transfer(before, MemoryKind::device), value);
    }
    const Tensor after = kernels::transfer(value, MemoryKind::host);
    builder.name(after, name);
    builder.role(after, role);
    if (!axes.empty()) builder.axes(after, axes);
    builder.output(after);
    if (!single) builder.donate(before, after);
  };
  // These calls are part of the backward pass, so that the matmul of a gradient can add directly to its sum.
  builder.phase = kernels::Phase::backward;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    builder.path = infos[i].path;
    keep("grad/" + infos[i].path, gradients[i], Role::gradient, infos[i].axes);
  }
  builder.path = "metrics";
  for (std::size_t i = 0; i < sums.values.size(); ++i)
    keep("accumulate/" + sums.names[i],
         i < kFirstSummary ? sums.values[i] : kernels::mul(sums.values[i], sums.values[1]), Role::state, {});
}

Marks place_marks(const Program& program) {
  Marks marks;
  std::int64_t bytes = 0;
  std::vector<std::string> waiting;
  int last = -1;
  const auto mark = [&] {
    for (const std::string& name : waiting) marks.of[name] = static_cast<int>(marks.calls.size());
    marks.calls.push_back(last);
    waiting.clear();
    bytes = 0;
  };
  const std::set<ValueId> kept(program.outputs.begin(), program.outputs.end());
  std::map<ValueId, std::string> names;  // an output has the name of what is donated to it
  for (const kernels::Donation& donation : program.donations)
    names[donation.output] = program.value(donation.input).name;
  for (std::size_t i = 0; i < program.calls.size(); ++i)
    for (const ValueId id : program.calls[i].outputs) {
      const kernels::Value& value = program.value(id);
      if (value.memory != MemoryKind::host || !kept.count(id)) continue;
      last = static_cast<int>(i);
      waiting.push_back(names.count(id) ? names.at(id) : value.name);
      bytes += value.type.bytes();
      if (bytes >= kBucketBytes) mark();
    }
  if (!waiting.empty()) mark();
  for (const auto& [output, name] : names)
    if (program.value(output).memory == MemoryKind::device)
      marks.of[name] = static_cast<int>(marks.calls.size());
  return marks;
}

std::vector<int> waits(const Program& program, const Marks& marks) {
  const Graph graph(program);
  std::vector<int> of_value(program.values.size(), -1), of_call;
  for (const ValueId id : program.inputs)
    if (const auto found = marks.of.find(program.value(id).name); found != marks.of.end())
      of_value[at(id)] = found->second;
  std::vector<int> read(program.values.size(), -1);  // by input: the largest of its readers so far
  std::map<ValueId, ValueId> overwrites;
  for (const kernels::Donation& donation : program.donations) overwrites[donation.output] = donation.input;
  for (const kernels::Call& call : program.calls) {
    int wait = -1;
    for (const ValueId id : call.inputs) wait = std::max(wait, of_value[at(id)]);
    for (const ValueId id : call.outputs)  // what is overwritten must have been read
      if (const auto found = overwrites.find(id); found != overwrites.end())
        wait = std::max({wait, of_value[at(found->second)], read[at(found->second)]});
    for (const ValueId id : call.inputs) read[at(id)] = std::max(read[at(id)], wait);
    for (const ValueId id : call.outputs) of_value[at(id)] = wait;
    of_call.push_back(wait);
  }
  return of_call;
}

Program order_by_marks(Program program, const Marks& marks) {
  const std::vector<int> wait = waits(program, marks);
  std::vector<std::size_t> order(program.calls.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return wait[a] < wait[b]; });
  std::vector<kernels::Call> calls;
  for (const std::size_t i : order) calls.push_back(std::move(program.calls[i]));
  program.calls = std::move(calls);
  return program;
}

std::vector<HostPart> host_parts(const Program& program, const Marks& marks,
                                 const std::set<std::string>& to_device) {
  const std::vector<int> wait = waits(program, marks);
  std::map<ValueId, std::string> names;
  for (const kernels::Donation& donation : program.donations)
    if (const std::string& name = program.value(donation.input).name; to_device.count(name))
      names[donation.output] = name;
  std::vector<HostPart> parts;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const int index = static_cast<int>(i);
    // A mark that was passed stays so, should a call that waits for less come later.
    if (parts.empty() || wait[i] > parts.back().mark || bytes >= kBucketBytes) {
      parts.push_back({index, index, parts.empty() ? wait[i] : std::max(wait[i], parts.back().mark), {}});
      bytes = 0;
    }
    parts.back().last = index + 1;
    for (const ValueId id : program.calls[i].outputs)
      if (const auto found = names.find(id); found != names.end()) {
        parts.back().to_device.push_back(found->second);
        bytes += program.value(id).type.bytes();
      }
  }
  return parts;
}

}  // namespace meshloom::trainer
