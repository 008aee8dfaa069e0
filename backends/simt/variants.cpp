#include "backends/simt/variants.h"

namespace meshloom::backends::simt {

void add_simt_variants(kernels::Catalog& catalog, const std::string& backend) {
  (void)catalog;
  (void)backend;
}

}  // namespace meshloom::backends::simt
