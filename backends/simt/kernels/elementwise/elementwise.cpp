// The fused elementwise chain: the expression becomes a list of the kernel's own step macros.
#include <cstdint>

#include "backends/simt/dialect/expression.h"
#include "backends/simt/host/packs.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/expression.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Expression;
using kernels::Fit;

// What must be whole packs: the output, and what of an input is repeated.
std::vector<std::int64_t> extents_of(const CallView& call) {
  std::vector<std::int64_t> extents{call.outputs[0].elements()};
  for (const kernels::TensorType& input : call.inputs)
    if (input.elements() != 1) extents.push_back(input.elements());
  return extents;
}

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  if (call.inputs.size() + call.outputs.size() > kernels::kMaxElementwiseOperands)
    return Fit::no("takes at most " + std::to_string(kernels::kMaxElementwiseOperands) + " operands");
  return fit_packs(call, target, extents_of(call));
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  return other_packs(call, target, extents_of(call));
}

// How an input is read: whole, by its trailing part, or one element.
std::string how_read(const kernels::TensorType& input, const kernels::TensorType& output) {
  return input.elements() == output.elements() ? "full" : input.elements() == 1 ? "one" : "tail";
}

void encode(const EncodeArgs& args) {
  const CallView& call = args.call;
  const Expression expression = kernels::parse_expression(call.attrs.text("expr"));
  const std::size_t inputs = call.inputs.size(), outputs = call.outputs.size();
  const std::int64_t count = call.outputs[0].elements(), pack = args.choice.params.at("pack");
  Launch command{
      .kernel = "elementwise", .constants = {hal::word(count)}, .items = ceil_div(count, pack), .pack = pack};
  command.defines = pack_defines(call, pack);
  command.defines.push_back(define("OPERANDS", static_cast<std::int64_t>(inputs + outputs)));
  std::string reads_text, results, writes_text;
  for (std::size_t k = 0; k < inputs + outputs; ++k) {
    const std::string index = std::to_string(k);
    const kernels::TensorType& type = k < inputs ? call.inputs[k] : call.outputs[k - inputs];
    command.defines.push_back({"A" + index, k < inputs ? "R" : "W"});
    command.defines.push_back(dtype_define(("T" + index).c_str(), type));
    if (k < inputs) {
      reads_text += "READ_" + how_read(type, call.outputs[0]) + "(" + index + ") ";
      command.bindings.push_back(reads(whole_words(args.inputs[k])));
    } else {
      reads_text += "PLACE(" + index + ") ";
      results += "RESULT(" + index + "," + std::to_string(expression.roots[k - inputs]) + ") ";
      writes_text += "WRITE(" + index + ") ";
      command.bindings.push_back(writes(whole_words(args.outputs[k - inputs])));
    }
  }
  command.defines.push_back({"READS", reads_text});
  command.defines.push_back({"CHAIN", steps(expression, [](int node, int input) {
                               return "S_read(" + std::to_string(node) + "," + std::to_string(input) + ")";
                             })});
  command.defines.push_back({"RESULTS", results});
  command.defines.push_back({"WRITES", writes_text});
  for (std::size_t k = 0; k < 7; ++k)
    command.constants.push_back(hal::word(k < inputs ? call.inputs[k].elements() : std::int64_t{1}));
  launch(args, command);
}

}  // namespace

std::vector<kernels::OpVariants> elementwise_ops() {
  kernels::Variant variant = simt_variant("one pass over memory for a whole chain", fit, encode, true);
  variant.alternatives = alternatives;
  return {{"elementwise", {variant}}};
}

}  // namespace meshloom::backends::simt
