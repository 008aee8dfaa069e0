#include "kernels/row_groups/parts.h"

namespace meshloom::kernels {

void add_row_groups(Catalog& catalog) {
  row_groups_parts::add_grouping(catalog);
  row_groups_parts::add_moves(catalog);
}

}  // namespace meshloom::kernels
