// The fused elementwise chain: the expression becomes a list of the kernel's own step macros.
#include <cstdint>

#include "backends/simt/dialect/expression.h"
#include "backends/simt/host/launch.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/expression.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Expression;
using kernels::Fit;

Fit fit(const CallView& call, const hal::DeviceInfo&) {
  if (const std::string reason = unsupported_dtype(call); !reason.empty()) return Fit::no(reason);
  if (call.inputs.size() + call.outputs.size() > kernels::kMaxElementwiseOperands)
    return Fit::no("takes at most " + std::to_string(kernels::kMaxElementwiseOperands) + " operands");
  return Fit::yes();
}

// How input `k` is read: whole, by its trailing part, or one element.
std::string read_step(const CallView& call, int node, int k) {
  const std::int64_t have = call.inputs[static_cast<std::size_t>(k)].elements();
  const std::int64_t want = call.outputs[0].elements();
  const char* how = have == want ? "full" : have == 1 ? "one" : "tail";
  return "S_" + std::string(how) + "(" + std::to_string(node) + "," + std::to_string(k) + ")";
}

void encode(const EncodeArgs& args) {
  const Expression expression = kernels::parse_expression(args.call.attrs.text("expr"));
  const std::size_t inputs = args.call.inputs.size(), outputs = args.call.outputs.size();
  const std::int64_t count = args.call.outputs[0].elements();
  std::string results;
  for (std::size_t r = 0; r < outputs; ++r)
    results += (r ? " " : "") + std::string("RESULT(") + std::to_string(inputs + r) + "," +
               std::to_string(expression.roots[r]) + ")";
  Launch command{
      .kernel = "elementwise",
      .defines = {{"INPUTS", std::to_string(inputs)},
                  {"OPERANDS", std::to_string(inputs + outputs)},
                  {"CHAIN",
                   steps(expression, [&](int node, int input) { return read_step(args.call, node, input); })},
                  {"RESULTS", results}},
      .constants = {hal::word(count)},
      .items = count};
  for (std::size_t k = 0; k < 7; ++k)
    command.constants.push_back(hal::word(k < inputs ? args.call.inputs[k].elements() : std::int64_t{1}));
  for (const hal::Binding& binding : args.inputs) command.bindings.push_back(reads(binding));
  for (const hal::Binding& binding : args.outputs) command.bindings.push_back(writes(binding));
  launch(args, command);
}

}  // namespace

std::vector<kernels::OpVariants> elementwise_ops() {
  return {{"elementwise", {simt_variant("one pass over memory for a whole chain", fit, encode)}}};
}

}  // namespace meshloom::backends::simt
