// Partitions a program over the ranks of a mesh.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/compose/compose.h"
#include "trainer/mesh/spec.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// What came in parts, and was gathered because an op has it whole.
struct MadeWhole {
  std::string op;
  std::int64_t bytes = 0;
};

// The program of one rank, the persistent values of which it holds a part, and what every rank has whole unasked.
struct Partitioned {
  kernels::Program program;
  std::map<std::string, Division> divided;
  std::vector<MadeWhole> made_whole;
};

// Divides a program over the ranks of a mesh, from its inputs on: a call computes along the dimensions in which its inputs are
// cut, as its partition rule allows; what does not suit is moved between ranks in front of it (convert_spec.h).
//   inputs of rows     cut by rows over data, expert and fsdp, and by tokens over seq (Step::logits has them whole)
//   parameters         cut over model along heads, kv_heads, mlp and vocab, and over expert along that of experts; ranges of their
//                      elements over fsdp, gathered where they are read
//   updates            by ranges; what an update needs whole of a parameter that is not cut is collected and computed by one rank
//                      (owners.h)
//   activations        as the parameters make them; what is summed over model, such as the output of a block, is cut by rows
//                      over model, gathered in front of the next product (sequence parallelism)
//                      rows and tokens in one dimension are cut over seq sequence by sequence (Spec::blocks), and what an
//                      op computes by places of that dimension is gathered; in zigzag (Topology::zigzag) a whole value is in
//                      order, and what an op computes by places is gathered too, unless it knows of two runs
//                      (Contract::takes_two_runs)
//   rows of experts    gathered over expert, sorted by every rank into the groups of its own experts; what these give is summed
//                      over expert, and cut by rows again
//   optimizer states   cut like their parameters, and ranges over all axes that do not cut them; parameters are updated by
//                      ranges, each element by one rank
//   sums of gradients  like these where there is fsdp; else every rank has a summand
// Ranges are of f32 values with at least as many elements as there are ranks. Over one rank the program stays as it is. Throws
// Error where a rule does not suit its call (kernels/core/partition_rule.h), and for sizes that the mesh does not divide.
// `attention` is the way in which attention is divided over the axis seq, LocalArgs::method: gather, all_to_all or ring.
// `gradient_dtype`, f32, bf16 or i8, is what gradients of parameters move in where they are added up between ranks
// (compressed_gradients.h); sums are f32.
Partitioned partition(kernels::Program program, const kernels::Catalog& catalog, const Topology& mesh,
                      const std::string& attention = "gather",
                      kernels::DType gradient_dtype = kernels::DType::f32);

}  // namespace meshloom::trainer
