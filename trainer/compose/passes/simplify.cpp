#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/elementwise/expression.h"
#include "kernels/elementwise/rewrite.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/fuse.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Program;
using kernels::Value;
using kernels::ValueId;

// Copies the name, role and axes of a value to the one that replaces it.
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

// Removes reshapes that change nothing and reshapes of reshapes.
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

// Rewrites the call with these `roots` of `expression`; of its inputs it keeps those that are used, each
// once.
void rewrite(Call& call, const kernels::Expression& expression, const std::vector<std::int32_t>& roots) {
  std::vector<char> used(expression.nodes.size(), 0);
  for (std::int32_t root : roots) used[at(root)] = 1;
  std::vector<ValueId> inputs;
  std::vector<std::int32_t> input_map(call.inputs.size(), -1);
  for (std::size_t n = expression.nodes.size(); n-- > 0;) {
    const kernels::ExprNode& node = expression.nodes[n];
    if (!used[n]) continue;
    for (std::int32_t operand : {node.a, node.b, node.c})
      if (operand >= 0) used[at(operand)] = 1;
  }
  for (std::size_t n = 0; n < expression.nodes.size(); ++n) {
    const kernels::ExprNode& node = expression.nodes[n];
    if (!used[n] || node.op != kernels::ExprOp::input) continue;
    const ValueId value = call.inputs[at(node.index)];
    const auto known = std::find(inputs.begin(), inputs.end(), value);
    input_map[at(node.index)] = static_cast<std::int32_t>(known - inputs.begin());
    if (known == inputs.end()) inputs.push_back(value);
  }
  kernels::Expression smaller;
  std::vector<std::int32_t> done(expression.nodes.size(), -1);
  for (std::int32_t root : roots)
    smaller.roots.push_back(kernels::copy_into(smaller, expression, root, done, input_map));
  smaller.inputs = static_cast<std::int32_t>(inputs.size());
  call.inputs = std::move(inputs);
  call.attrs.set("expr", kernels::to_string(smaller));
}

bool distinct(std::vector<ValueId> ids) {
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) == ids.end();
}

// Replaces roots that are an input by that input; removes roots that nobody reads and duplicate inputs. True
// when something changed.
bool shrink_elementwise(Program& program, const Graph& graph, const std::vector<ValueId>& storage,
                        std::vector<ValueId>& to) {
  bool changed = false;
  for (Call& call : program.calls) {
    if (call.op != "elementwise") continue;
    const std::shared_ptr<const kernels::Expression> kept =
        kernels::parsed_expression(call.attrs.text("expr"));
    const kernels::Expression& expression = *kept;
    std::vector<std::int32_t> roots;
    std::vector<ValueId> outputs;
    for (std::size_t r = 0; r < call.outputs.size(); ++r) {
      const ValueId result = call.outputs[r];
      const bool kept = graph.outlives_program(result);
      const kernels::ExprNode& node = expression.nodes[at(expression.roots[r])];
      if (!kept && node.op == kernels::ExprOp::input) {
        const ValueId source = call.inputs[at(node.index)];
        // Storage that is overwritten later cannot replace a copy of its old contents.
        const bool safe = graph.overwritten[at(storage[at(source)])] < 0;
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
    if (outputs.empty()) continue;  // dead now
    if (outputs.size() == call.outputs.size() && distinct(call.inputs)) continue;
    call.outputs = std::move(outputs);
    rewrite(call, expression, roots);
    changed = true;
  }
  return changed;
}

}  // namespace

Program simplify(Program program, const kernels::Catalog& catalog) {
  for (bool changed = true; changed;) {
    const std::size_t calls = program.calls.size();
    const Graph graph(program);
    std::vector<ValueId> to(program.values.size());
    std::iota(to.begin(), to.end(), 0);
    shorten_views(program, graph, to);
    changed = shrink_elementwise(program, graph, view_roots(program, catalog), to);
    replace_uses(program, std::move(to));
    remove_dead_calls(program);
    changed = changed || program.calls.size() < calls;
  }
  return program;
}

}  // namespace meshloom::trainer
