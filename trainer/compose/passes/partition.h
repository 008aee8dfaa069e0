// Partitions a program over the ranks of a mesh. Over one rank that is the whole program.
#pragma once

#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/compose/compose.h"

namespace meshloom::trainer {

// Throws Error on an unknown or repeated mesh axis, a size below 1, and a size above 1, which is not
// supported yet.
void check_mesh(const std::vector<MeshAxis>& mesh);

// Returns the program unchanged after checking that the partition rule of every call suits its tensors: one
// letter (or '.') per dimension of every input and output, and the sizes under one letter are equal or
// multiples of each other.
kernels::Program partition(kernels::Program program, const kernels::Catalog& catalog,
                           const std::vector<MeshAxis>& mesh);

}  // namespace meshloom::trainer
