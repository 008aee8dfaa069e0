// Cuts a program into what one rank computes. Over a mesh of one rank that is the whole program.
#pragma once

#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/compose/compose.h"

namespace meshloom::trainer {

// Throws Error on an unknown or repeated mesh axis, a size below 1, and (not built yet) a size above 1.
void check_mesh(const std::vector<MeshAxis>& mesh);

// The identity, having checked that every call's partition rule speaks of its dimensions: one letter (or '.')
// per dimension of every input and output, sizes under one letter equal or multiples of each other.
kernels::Program partition(kernels::Program program, const kernels::Catalog& catalog,
                           const std::vector<MeshAxis>& mesh);

}  // namespace meshloom::trainer
