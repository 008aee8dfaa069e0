// Partitions a program over the ranks of a mesh.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/compose/compose.h"
#include "trainer/mesh/spec.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// Throws Error for axes that are not built yet.
void check_axes(const Topology& mesh);

// The program of one rank, and the persistent values of which it holds a part.
struct Partitioned {
  kernels::Program program;
  std::map<std::string, Division> divided;
};

// Divides a program over the ranks of a mesh, from its inputs on: a call computes along the dimensions in which its inputs are
// cut, as its partition rule allows; what does not suit is moved between ranks in front of it (convert_spec.h).
//   inputs of rows     cut by rows over data and fsdp (Step::logits has them whole)
//   parameters         ranges of their elements over fsdp, gathered where they are read
//   optimizer states   ranges over data and fsdp; parameters are updated by ranges, each element by one rank
//   sums of gradients  ranges over both where there is fsdp; else every rank has a summand
// f32 values only, with at least as many elements as there are ranks; others are whole. Over one rank the program stays as it
// is. Throws Error where a rule does not suit its call: it needs one letter (or '.') per dimension of every input and output,
// and sizes under one letter that are equal or multiples of each other.
Partitioned partition(kernels::Program program, const kernels::Catalog& catalog, const Topology& mesh);

}  // namespace meshloom::trainer
