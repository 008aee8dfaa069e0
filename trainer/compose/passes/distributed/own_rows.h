// Calls that sort rows into groups, such as those of experts, and what can be done with the rows of a shard alone: letters in braces
// of a partition rule (kernels/core/partition_rule.h).
#pragma once

#include <cstdint>
#include <set>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// The calls that every shard does with its own rows: those that sort rows that `rows` divides, where everything made of their
// results can do with the rows of a shard.
std::set<const kernels::Call*> calls_that_sort_own_rows(const kernels::Program& program,
                                                        const kernels::Catalog& catalog, AxisSet rows,
                                                        const Topology& mesh);

// How many sequences lie behind one another in a dimension of so many places that the axis seq shall cut.
std::int64_t sequences_in(std::int64_t places, const kernels::Program& program, const Topology& mesh);

}  // namespace meshloom::trainer
