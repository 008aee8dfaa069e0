// On the host both kinds of memory are the same.
#include "kernels/transfer/transfer.h"

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"

namespace meshloom::backends::cpu {

Ops transfer_ops() {
  kernels::Variant copy = low_precision_variant("one copy command", kernels::fit_copy, kernels::encode_copy);
  copy.name = "copy";
  return {{}, {{"transfer", {copy}}}};
}

}  // namespace meshloom::backends::cpu
