#include "kernels/core/contract.h"

namespace meshloom::kernels {

double bytes_once(const CallView& call) {
  std::int64_t bytes = 0;
  for (const TensorType& type : call.inputs) bytes += type.bytes();
  for (const TensorType& type : call.outputs) bytes += type.bytes();
  return static_cast<double>(bytes);
}

double no_flops(const CallView&) { return 0; }

std::vector<std::pair<int, int>> never_in_place(const CallView&) { return {}; }

}  // namespace meshloom::kernels
