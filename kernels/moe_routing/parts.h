// The pieces of the contracts.
#pragma once

#include "kernels/core/catalog.h"
#include "kernels/moe_routing/moe_routing.h"

namespace meshloom::kernels::row_groups_parts {

void add_grouping(Catalog& catalog);  // integers: expert_capacity, expert_groups
void add_moves(Catalog& catalog);     // moe_dispatch, moe_combine, row_dot

}  // namespace meshloom::kernels::row_groups_parts
