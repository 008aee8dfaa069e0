#include "backends/null/backend.h"
#ifdef MESHLOOM_HAS_SIMT
#include "backends/simt/variants.h"
#endif

namespace meshloom::backends::null {

void add_null_variants([[maybe_unused]] kernels::Catalog& catalog) {
#ifdef MESHLOOM_HAS_SIMT
  catalog.add("null", simt::variants());
#endif
}

}  // namespace meshloom::backends::null
