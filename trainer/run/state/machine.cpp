#include "trainer/run/state/machine.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <set>

#include "hal/suggest.h"
#include "kernel_sources.h"
#include "kernels/core/variant.h"

namespace meshloom::trainer {
namespace {

std::string types_text(const std::vector<kernels::TensorType>& types) {
  std::string text;
  for (const kernels::TensorType& type : types) text += kernels::to_string(type) + ",";
  return text;
}

// The text does not say where the call stands in the program: recomputed calls are copies and count once. Nor does it say whether
// a call writes a copy of a parameter, which has the bits of a cast (passes/parameter_copies.h): a run may continue with and
// without.
std::string call_text(const kernels::Program& program, const kernels::Call& call) {
  std::vector<kernels::ValueId> outputs = call.outputs;
  const bool copies = program.value(outputs.back()).role == kernels::Role::parameter_copy;
  if (copies) outputs.pop_back();
  kernels::Attrs attrs;
  for (const auto& [name, value] : call.attrs.items())
    if (!copies || name != "dtype") attrs.set(name, value);
  std::string text = fmt::format("{} {}({})->({})", call.op, call.choice->variant->name,
                                 types_text(program.types(call.inputs)), types_text(program.types(outputs)));
  text += kernels::to_string(attrs);
  for (const auto& [name, value] : call.choice->params) text += fmt::format(" {}={}", name, value);
  return text;
}

}  // namespace

Machine machine_of(const hal::DeviceInfo& device, const Plan& plan) {
  Machine machine;
  const bool host = device.backend == "cpu";
  machine.device = host ? "cpu" : device.name;
  machine.driver = device.driver;
  if (host) machine.instructions = hal::join(device.features);
#ifdef __clang__
  const char* compiler = "clang " __clang_version__;
#else
  const char* compiler = "gcc " __VERSION__;
#endif
  machine.program =
      fmt::format("meshloom {}, {}, kernels {}", MESHLOOM_VERSION, compiler, MESHLOOM_KERNEL_SOURCES);
  std::set<std::string> calls;
  for (const UpdateStep& part : plan.steps.update) {
    const kernels::Program& program = plan.steps.at(part.step).program;
    for (const kernels::Call& call : program.calls) {
      if (!call.choice || !call.choice->variant || call.op == "cast") continue;  // whose bits are exact
      if (calls.insert(call_text(program, call)).second)
        ++machine.variants[call.op + " " + call.choice->variant->name];
    }
  }
  std::string all;
  for (const std::string& call : calls) all += call + "\n";
  machine.kernels = fmt::format("{:016x}", XXH64(all.data(), all.size(), 0));
  return machine;
}

std::string machine_text(const Machine& machine) {
  return fmt::format("{}, {}{}, {}, calls {}", machine.device, machine.driver,
                     machine.instructions.empty() ? "" : ", " + machine.instructions, machine.program,
                     machine.kernels);
}

std::vector<std::string> differences(const Machine& then, const Machine& now) {
  std::vector<std::string> list;
  if (then.device.empty()) return list;
  const auto compare = [&](const char* what, const std::string& before, const std::string& after) {
    const auto shown = [](const std::string& text) {
      return text.empty() ? std::string("none") : "'" + text + "'";
    };
    if (before != after) list.push_back(fmt::format("{}: {} -> {}", what, shown(before), shown(after)));
  };
  compare("device", then.device, now.device);
  compare("driver", then.driver, now.driver);
  compare("instructions", then.instructions, now.instructions);
  compare("program", then.program, now.program);
  if (then.ranks.size() == now.ranks.size())  // else the mesh differs
    for (std::size_t i = 0; i < now.ranks.size(); ++i)
      compare(fmt::format("rank {}", i + 1).c_str(), then.ranks[i], now.ranks[i]);
  if (then.kernels == now.kernels) return list;
  std::string changes;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> counts;
  for (const auto& [variant, count] : then.variants) counts[variant].first = count;
  for (const auto& [variant, count] : now.variants) counts[variant].second = count;
  for (const auto& [variant, count] : counts)
    if (count.first != count.second)
      changes +=
          fmt::format("{}{} {} -> {}", changes.empty() ? "" : ", ", variant, count.first, count.second);
  list.push_back("kernels: " + (changes.empty() ? "the same variants with other parameters" : changes));
  return list;
}

}  // namespace meshloom::trainer
