#include "kernels/moe_routing/parts.h"

namespace meshloom::kernels {

void add_moe_routing(Catalog& catalog) {
  row_groups_parts::add_grouping(catalog);
  row_groups_parts::add_moves(catalog);
}

}  // namespace meshloom::kernels
