#include "backends/null/backend.h"

namespace meshloom::backends::null {

void add_null_variants(kernels::Catalog&) {}

}  // namespace meshloom::backends::null
