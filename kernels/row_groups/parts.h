// The pieces of the contracts.
#pragma once

#include "kernels/core/catalog.h"
#include "kernels/row_groups/row_groups.h"

namespace meshloom::kernels::row_groups_parts {

void add_grouping(Catalog& catalog);  // integers: limit_groups, group_rows
void add_moves(Catalog& catalog);     // spread_rows, combine_rows, dot_rows

}  // namespace meshloom::kernels::row_groups_parts
