#include "kernels/variant.h"

#include <algorithm>

namespace meshloom::kernels {

bool Variant::serves(hal::ProfileKind kind) const {
  return kinds.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace meshloom::kernels
