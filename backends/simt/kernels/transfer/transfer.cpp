// Copies between the kinds of memory, by the device's own copy command.
#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
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

std::vector<kernels::OpVariants> transfer_ops() {
  kernels::Variant copy =
      simt_variant("one copy command, which kernels need not wait for", fit, encode, true);
  copy.name = "copy";
  return {{"transfer", {std::move(copy)}}};
}

}  // namespace meshloom::backends::simt
