#include "trainer/compose/memory/host_plan.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "trainer/compose/passes/roofline.h"

namespace meshloom::trainer {
namespace {

// The persistent values that the programs of a plan write. The new value of a state need not have its name.
std::set<std::string> written(const Plan& plan) {
  std::set<std::string> names;
  for (const auto& [step, planned] : plan.steps.programs) {
    for (const kernels::ValueId id : planned.program.outputs) names.insert(planned.program.value(id).name);
    for (const kernels::Donation& donation : planned.program.donations)
      names.insert(planned.program.value(donation.input).name);
  }
  return names;
}

}  // namespace

std::vector<CopiedValue> copied_values(const Programs& of_device, const Programs& of_host) {
  std::map<std::string, hal::MemoryKind> memories;
  for (const auto& [step, program] : of_device)
    for (const std::vector<kernels::ValueId>* ids : {&program.inputs, &program.outputs})
      for (const kernels::ValueId id : *ids)
        memories.emplace(program.value(id).name, program.value(id).memory);
  std::map<std::string, CopiedValue> copied;
  for (const auto& [step, program] : of_host)
    for (const kernels::ValueId id : program.inputs) {
      const kernels::Value& value = program.value(id);
      if (const auto found = memories.find(value.name);
          found != memories.end() && found->second == hal::MemoryKind::device)
        copied.emplace(value.name, CopiedValue{value.name, value.type, value.role});
    }
  std::vector<CopiedValue> list;
  for (auto& [name, value] : copied) list.push_back(std::move(value));
  return list;
}

void plan_host(Plan& plan, Programs programs, const kernels::Catalog& catalog, const hal::DeviceInfo& device,
               const hal::DeviceInfo& host_device, const Marks& marks) {
  Plan host;
  host.device = host_device.id;
  std::map<int, int> local;  // by block of the device's plan
  const auto share = [&](const kernels::Value& value, const Placement& place) {
    const auto [block, fresh] = local.emplace(place.block, static_cast<int>(host.blocks.size()));
    if (fresh) {
      host.blocks.push_back(plan.blocks.at(static_cast<std::size_t>(place.block)));
      host.blocks.back().memory = hal::MemoryKind::device;  // the kernels of the host reach it
      host.blocks.back().shared = place.block;
    }
    host.persistent[value.name] = {block->second, place.offset, place.bytes};
    host.persistent_types[value.name] = value.type;
  };
  for (const auto& [step, program] : programs)
    for (const kernels::ValueId id : program.inputs) {
      const kernels::Value& value = program.value(id);
      if (const auto copy = plan.host.copies.find(value.name); copy != plan.host.copies.end())
        share(value, copy->second);
      else if (const auto own = plan.persistent.find(value.name); own != plan.persistent.end())
        share(value, own->second);
    }
  plan_memory(host, std::move(programs), catalog, host_device);
  check_memory(host, catalog);
  const std::set<std::string> of_device = written(plan), of_host = written(host);
  std::set<std::string> to_device;
  double bytes = 0;
  for (const auto& [name, place] : plan.host.copies) {
    if (of_device.count(name)) plan.host.to_host.push_back(name);
    if (of_host.count(name)) to_device.insert(name);
    bytes +=
        static_cast<double>(place.bytes) * static_cast<double>(of_device.count(name) + of_host.count(name));
  }
  plan.host.to_device.assign(to_device.begin(), to_device.end());
  if (const double rate = host_link_rate(device.profile); rate > 0) plan.host.copy_seconds = bytes / rate;
  plan.host.parts = host_parts(host.steps.at(Step::apply).program, marks, to_device);
  plan.steps.programs.at(Step::accumulate).marks = marks.calls;
  plan.host.blocks = std::move(host.blocks);
  plan.host.persistent = std::move(host.persistent);
  for (const auto& [kind, amount] : host.memory) plan.host.memory[kind] += amount;
  plan.host.peak_bytes += host.peak_bytes;
  plan.persistent_types.merge(host.persistent_types);
  for (auto& [step, planned] : host.steps.programs) {
    planned.on_host = true;
    plan.steps.programs.emplace(step, std::move(planned));
  }
}

}  // namespace meshloom::trainer
