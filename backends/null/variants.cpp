#include "backends/null/backend.h"
#ifdef MESHLOOM_HAS_SIMT
#include "backends/simt/variants.h"
#endif

namespace meshloom::backends::null {

void add_null_variants([[maybe_unused]] kernels::Catalog& catalog) {
#ifdef MESHLOOM_HAS_SIMT
  simt::add_simt_variants(catalog, "null");
#endif
}

}  // namespace meshloom::backends::null
