// Lets moves between ranks run while calls compute, and moves much at once.
#pragma once

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// Gives every collective the place where it starts (kernels::Call::starts), and puts it where it ends:
//   what is known when the program begins, such as a parameter, is moved from the beginning of the region (remat.h) before the
//     one that reads it, or of one before that where this takes no more staging than the largest exchange does;
//   a gradient that is added up from the end of its region to the end of the next, and what only leads from it to the update
//     follows it, the addition to the sum of micro-batches at once;
//   any other from where it is known to where it is read first, but what is moved between stages of a pipeline stays in its place.
// Collectives of one region and one op over the same ranks for which these places agree become neighbours that start together:
// one message for each peer (exchanges.h). Calls do not change, and are in another order only where that follows from the above,
// so that results keep their bits; the order is the same on all ranks whose programs have the same collectives.
kernels::Program overlap_moves(kernels::Program program, const kernels::Catalog& catalog);

}  // namespace meshloom::trainer
