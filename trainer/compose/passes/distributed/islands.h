// Islands: groups of ranks that train by themselves, each with its own rows, and exchange what they have learnt after every so many
// updates (DiLoCo: Douillard et al., Distributed Low-Communication Training of Language Models, 2023).
//
// What an island has of its own, its parameters "island/<path>" and the states of its optimizer, is a tensor with a first dimension
// for the islands. The parameters by their names, its anchors, are the same on all islands: those after the last exchange.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/step.h"
#include "trainer/mesh/spec.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// Makes a partitioned program, which was traced with the rows of one island, that of an island. `divided` is what partitioning
// says of its values, `trained` are the parameters that change. Programs that train read and write the island's own parameters;
// rows are those of all islands, one island behind another; what an evaluation measures is summed over them.
void enter_islands(kernels::Program& program, Step step, const std::vector<std::string>& trained,
                   std::map<std::string, Division>& divided, const kernels::Catalog& catalog,
                   const Topology& mesh);

// Deals parameters to parts of about as many elements, in order, those of a layer together. Returns, by part, their places in
// `infos`. Throws Error where there are fewer layers than parts.
std::vector<std::vector<std::size_t>> deal_outer_parts(const std::vector<layers::ParameterInfo>& infos,
                                                       std::int64_t parts);

// The exchange of these parameters, on this rank. `divided` says how each lies at rest, and gets the states. With w_i, of which
// island i has what its ranks hold, and N islands:
//   d_i = anchor - w_i + error_i    error_i' = d_i - sent(d_i)
//   d   = sum of sent(d_i) in the order of islands / N, on the island that owns the element
//   m'  = momentum m + d            s = rate (d + momentum m'), rate m' without nesterov
//   s   = s + step_error            step_error' = s - sent(s)
//   anchor' = w_i' = anchor - sent(s)
// sent() rounds to the dtype that is moved: bf16, or int8 with a scale for every 256 elements; f32 has no errors. Every element of
// a step is computed on one rank and copied, so that all islands have the same anchors, whatever their devices. Parameters of so few
// elements that islands cannot own blocks of them (island_piece) are exchanged in f32, and island 0's step is copied.
// States: "outer/momentum/<path>", "outer/error/<path>", "outer/step_error/<path>", which begin as zeros.
kernels::Program outer_program(const std::vector<layers::ParameterInfo>& infos, const OuterOptions& options,
                               std::map<std::string, Division>& divided, const kernels::Catalog& catalog,
                               const Topology& mesh);

}  // namespace meshloom::trainer
