// On the host both kinds of memory are the same; see kernels/transfer.
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"

namespace meshloom::backends::cpu {
namespace {

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo&) {
  if (call.inputs[0].bytes() % 4 != 0)
    return kernels::Fit::no("a copy takes whole words, and " + to_string(call.inputs[0]) + " has " +
                            std::to_string(call.inputs[0].bytes()) + " bytes");
  return kernels::Fit::yes();
}

void encode(const kernels::EncodeArgs& args) {
  args.commands.copy(hal::reads(args.inputs[0]), hal::writes(args.outputs[0]), args.label);
}

}  // namespace

Ops transfer_ops() {
  kernels::Variant copy = low_precision_variant("one copy command", fit, encode);
  copy.name = "copy";
  return {{}, {{"transfer", {copy}}}};
}

}  // namespace meshloom::backends::cpu
