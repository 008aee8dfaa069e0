#include "kernels/program/print.h"

#include "kernels/core/variant.h"

namespace meshloom::kernels {
namespace {

std::string list(const std::vector<ValueId>& ids) {
  std::string text;
  for (ValueId id : ids) text += (text.empty() ? "%" : ", %") + std::to_string(id);
  return text;
}

std::string describe(const Value& value) {
  std::string text = to_string(value.type);
  if (!value.axes.empty()) {
    text += " [";
    for (std::size_t i = 0; i < value.axes.size(); ++i)
      text += (i ? ", " : "") + (value.axes[i].empty() ? std::string("_") : value.axes[i]);
    text += "]";
  }
  if (value.role != Role::activation) text += " " + std::string(to_string(value.role));
  if (!value.name.empty()) text += " '" + value.name + "'";
  if (!value.tag.empty()) text += " #" + value.tag;
  if (value.memory == hal::MemoryKind::host) text += " on the host";
  return text;
}

}  // namespace

std::string print(const Program& program) {
  std::string text = "program " + program.name + "\n";
  for (ValueId id : program.inputs)
    text += "input %" + std::to_string(id) + ": " + describe(program.value(id)) + "\n";
  std::string path, phase;
  for (const Call& call : program.calls) {
    if (call.path != path || to_string(call.phase) != phase) {
      path = call.path;
      phase = to_string(call.phase);
      text += "# " + phase + " " + path + "\n";
    }
    text +=
        list(call.outputs) + (call.outputs.empty() ? "" : " = ") + call.op + "(" + list(call.inputs) + ")";
    if (!call.attrs.items().empty()) text += " " + to_string(call.attrs);
    for (std::size_t i = 0; i < call.outputs.size(); ++i)
      text += (i ? ", " : " : ") + describe(program.value(call.outputs[i]));
    if (call.choice && call.choice->variant) {
      text += " @" + call.choice->variant->name;
      for (const auto& [name, value] : call.choice->params) text += " " + name + "=" + std::to_string(value);
      if (call.choice->workspace_bytes) text += " workspace=" + std::to_string(call.choice->workspace_bytes);
    }
    if (call.starts >= 0) text += " starts=" + std::to_string(call.starts);
    text += "\n";
  }
  text += "output " + list(program.outputs) + "\n";
  for (const Donation& donation : program.donations)
    text += "donate %" + std::to_string(donation.input) + " -> %" + std::to_string(donation.output) + "\n";
  return text;
}

}  // namespace meshloom::kernels
