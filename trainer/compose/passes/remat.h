// Rematerialisation (Chen et al., 2016): forward values that are not saved are computed again in the backward
// pass, region by region, from those that are.
#pragma once

#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/compose/compose.h"

namespace meshloom::trainer {

// The part of a module path that is computed again as one: up to its first component that ends in a digit
// ("decoder/layer3/attention" -> "decoder/layer3"); "" where there is none.
std::string region_of(const std::string& path);

// Tags that start so are of values that a layer asks to be computed again ("recompute.scores"): a last rule, behind all
// others, says that they are not saved.
constexpr char kRecomputed[] = "recompute.";

// Applies the first matching rule to every forward value that the backward pass reads. All shapes of one
// storage, and all outputs of one call, are decided together: by the first rule that matches any of their
// tags ("" where none has one). Always saved: program inputs, values that another region's forward reads,
// values outside regions. Exact clones (phase recompute) of the forward calls needed stand before the
// region's first backward call. `matched`, where given, receives for each rule whether it decided anything.
kernels::Program rematerialize(kernels::Program program, const kernels::Catalog& catalog,
                               const std::vector<RematRule>& rules, std::vector<char>* matched = nullptr);

}  // namespace meshloom::trainer
