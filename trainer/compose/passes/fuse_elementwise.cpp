#include <algorithm>
#include <utility>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/expression.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/fuse.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Expression;
using kernels::Program;
using kernels::ValueId;

class ElementwiseFuser {
 public:
  ElementwiseFuser(Program& program, const kernels::Catalog& catalog)
      : program_(program), graph_(program), roots_(view_roots(program, catalog)) {}

  void run() {
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      if (program_.calls[i].op != "elementwise") continue;
      while (absorb_one(static_cast<int>(i))) {
      }
    }
    remove_dead_calls(program_);
  }

 private:
  // Fuses one producer into call `index`; false when there is none.
  bool absorb_one(int index) {
    Call& consumer = program_.calls[at(index)];
    for (std::size_t k = 0; k < consumer.inputs.size(); ++k) {
      const ValueId value = consumer.inputs[k];
      const int definition = graph_.definition_of(value);
      if (definition < 0) continue;
      const Call& producer = program_.calls[at(definition)];
      if (!may_absorb(producer, value, consumer, index)) continue;
      if (absorb(producer, definition, consumer, index, k)) return true;
    }
    return false;
  }

  bool may_absorb(const Call& producer, ValueId value, const Call& consumer, int index) const {
    if (producer.op != "elementwise" || producer.outputs.size() != 1) return false;
    if (producer.inputs.empty()) return true;  // a constant is cheap to repeat
    if (graph_.outlives_program(value) || graph_.readers_of(value).size() != 1) return false;
    if (producer.phase != consumer.phase) return false;
    if (producer.attrs.list("shape") != consumer.attrs.list("shape")) return false;
    // Its inputs are now read later, so they must not have been overwritten.
    return std::all_of(producer.inputs.begin(), producer.inputs.end(), [&](ValueId input) {
      const int overwritten = graph_.overwritten[at(roots_[at(input)])];
      return overwritten < 0 || overwritten >= index;
    });
  }

  bool absorb(const Call& producer, int producer_index, Call& consumer, int index, std::size_t slot) {
    std::vector<ValueId> inputs;
    const auto number = [&](ValueId id) {
      const auto it = std::find(inputs.begin(), inputs.end(), id);
      if (it != inputs.end()) return static_cast<std::int32_t>(it - inputs.begin());
      inputs.push_back(id);
      return static_cast<std::int32_t>(inputs.size() - 1);
    };
    const ValueId value = consumer.inputs[slot];
    // compose() replaces one input only; simplify() merges duplicates, so this is rare.
    if (std::count(consumer.inputs.begin(), consumer.inputs.end(), value) != 1) return false;
    std::vector<std::int32_t> consumer_map, producer_map;
    for (ValueId id : consumer.inputs) consumer_map.push_back(id == value ? -1 : number(id));
    for (ValueId id : producer.inputs) producer_map.push_back(number(id));
    if (inputs.size() + consumer.outputs.size() > kernels::kMaxElementwiseOperands) return false;
    const auto from = kernels::parsed_expression(producer.attrs.text("expr")),
               into = kernels::parsed_expression(consumer.attrs.text("expr"));
    const Expression fused =
        kernels::compose(*into, static_cast<std::int32_t>(slot), *from, 0, consumer_map, producer_map);
    if (fused.nodes.size() > kMaxFusedNodes) return false;
    consumer.inputs = std::move(inputs);
    consumer.attrs.set("expr", kernels::to_string(fused));
    for (ValueId id : producer.inputs) move_reader(id, producer_index, index);
    std::vector<int>& readers = graph_.readers[at(value)];
    readers.erase(std::remove(readers.begin(), readers.end(), index), readers.end());
    return true;
  }

  void move_reader(ValueId id, int from, int to) {
    std::vector<int>& readers = graph_.readers[at(id)];
    // `from` is not an input any more, even when a constant remains for other readers.
    readers.erase(std::remove(readers.begin(), readers.end(), from), readers.end());
    if (std::find(readers.begin(), readers.end(), to) == readers.end()) {
      readers.push_back(to);
      std::sort(readers.begin(), readers.end());
    }
  }

  Program& program_;
  Graph graph_;
  std::vector<ValueId> roots_;
};

}  // namespace

Program fuse_elementwise(Program program, const kernels::Catalog& catalog) {
  ElementwiseFuser(program, catalog).run();
  return program;
}

}  // namespace meshloom::trainer
