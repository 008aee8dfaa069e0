#include <numeric>
#include <utility>

#include "kernels/elementwise/expression.h"
#include "trainer/compose/fuse.h"
#include "trainer/compose/graph.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Program;
using kernels::Value;
using kernels::ValueId;

std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

// Keeps what is known of a value when another takes its place.
void hand_over(Program& program, ValueId from, ValueId to) {
  const Value old = program.value(from);
  Value& value = program.value(to);
  if (value.role != kernels::Role::activation) return;
  if (value.tag.empty()) value.tag = old.tag;
  if (value.axes.empty() && value.type == old.type) value.axes = old.axes;
  if (old.role == kernels::Role::gradient) {
    value.role = old.role;
    value.name = old.name;
  }
}

// Uses of the result of a reshape that changes nothing, and reshapes of reshapes.
void shorten_views(Program& program, const Graph& graph, std::vector<ValueId>& to) {
  for (Call& call : program.calls) {
    if (call.op != "reshape") continue;
    ValueId source = call.inputs[0];
    while (graph.definition_of(source) >= 0) {
      const Call& before = program.calls[at(graph.definition_of(source))];
      if (before.op != "reshape") break;
      source = before.inputs[0];
    }
    call.inputs[0] = source;
    const ValueId result = call.outputs[0];
    if (graph.outlives_program(result) || program.value(source).type != program.value(result).type) continue;
    hand_over(program, result, source);
    to[at(result)] = source;
  }
}

// Roots that are an input as it stands become that input; roots that nobody reads go.
void shrink_elementwise(Program& program, const Graph& graph, std::vector<ValueId>& to) {
  for (Call& call : program.calls) {
    if (call.op != "elementwise") continue;
    kernels::Expression expression = kernels::parse_expression(call.attrs.text("expr"));
    std::vector<std::int32_t> roots;
    std::vector<ValueId> outputs;
    for (std::size_t r = 0; r < call.outputs.size(); ++r) {
      const ValueId result = call.outputs[r];
      const bool kept = graph.outlives_program(result);
      const kernels::ExprNode& node = expression.nodes[at(expression.roots[r])];
      if (!kept && node.op == kernels::ExprOp::input) {
        const ValueId source = call.inputs[at(node.index)];
        // Storage that is overwritten later must not stand in for a copy taken before.
        const bool safe = graph.overwritten[at(source)] < 0;
        if (safe && program.value(source).type == program.value(result).type) {
          hand_over(program, result, source);
          to[at(result)] = source;
          continue;
        }
      }
      if (!kept && graph.readers_of(result).empty()) continue;
      roots.push_back(expression.roots[r]);
      outputs.push_back(result);
    }
    if (outputs.empty() || outputs.size() == call.outputs.size()) continue;  // all gone: dead anyway
    // Renumber the inputs that are still used.
    kernels::Expression smaller;
    std::vector<std::int32_t> renumbered(expression.nodes.size(), -1);
    std::vector<ValueId> inputs;
    std::vector<std::int32_t> input_map(call.inputs.size(), -1);
    std::vector<char> needed(expression.nodes.size(), 0);
    for (std::int32_t root : roots) needed[at(root)] = 1;
    for (std::size_t n = expression.nodes.size(); n-- > 0;) {
      if (!needed[n]) continue;
      for (std::int32_t operand : {expression.nodes[n].a, expression.nodes[n].b, expression.nodes[n].c})
        if (operand >= 0) needed[at(operand)] = 1;
    }
    for (std::size_t n = 0; n < expression.nodes.size(); ++n) {
      if (!needed[n]) continue;
      kernels::ExprNode node = expression.nodes[n];
      if (node.op == kernels::ExprOp::input) {
        std::int32_t& index = input_map[at(node.index)];
        if (index < 0) {
          index = static_cast<std::int32_t>(inputs.size());
          inputs.push_back(call.inputs[at(node.index)]);
        }
        node.index = index;
      }
      for (std::int32_t* operand : {&node.a, &node.b, &node.c})
        if (*operand >= 0) *operand = renumbered[at(*operand)];
      renumbered[n] = smaller.add(node);
    }
    for (std::int32_t root : roots) smaller.roots.push_back(renumbered[at(root)]);
    smaller.inputs = static_cast<std::int32_t>(inputs.size());
    call.inputs = std::move(inputs);
    call.outputs = std::move(outputs);
    call.attrs.set("expr", kernels::to_string(smaller));
  }
}

}  // namespace

Program simplify(Program program, const kernels::Catalog&) {
  std::size_t calls;
  do {
    calls = program.calls.size();
    const Graph graph(program);
    std::vector<ValueId> to(program.values.size());
    std::iota(to.begin(), to.end(), 0);
    shorten_views(program, graph, to);
    shrink_elementwise(program, graph, to);
    replace_uses(program, std::move(to));
    remove_dead_calls(program);
  } while (program.calls.size() < calls);
  return program;
}

}  // namespace meshloom::trainer
