// Copies between the kinds of memory, by the device's own copy command.
#include "kernels/transfer/transfer.h"

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {

std::vector<kernels::OpVariants> transfer_ops() {
  kernels::Variant copy = simt_variant("one copy command, which kernels need not wait for", kernels::fit_copy,
                                       kernels::encode_copy, true);
  copy.name = "copy";
  return {{"transfer", {std::move(copy)}}};
}

}  // namespace meshloom::backends::simt
