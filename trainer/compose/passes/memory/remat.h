// Rematerialization (Chen et al., 2016): forward values that are not saved are recomputed in the backward
// pass, region by region, from saved values; or they wait for it in the host's memory (Rhu et al., vDNN, 2016).
#pragma once

#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/passes/memory/transfers.h"

namespace meshloom::trainer {

// The region of a module path, which is recomputed as one: the path up to its first component that ends in a
// digit ("decoder/layer3/attention" -> "decoder/layer3"); "" when there is none.
std::string region_of(const std::string& path);

// Layers give this prefix to the tags of values that should be recomputed ("recompute.scores"): a rule after
// all others says that they are not saved.
constexpr char kRecomputed[] = "recompute.";

// What is too little to be offloaded: bytes, and calls between the last reader and the next.
struct OffloadLimits {
  std::int64_t bytes = 4096;
  int calls = 2 * (kTransferDelay + kTransferAhead);
};

// Applies the first matching rule to every forward value that the backward pass reads. All views of one
// storage and all outputs of one call are decided together, by the first rule that matches any of their tags
// ("" when none has a tag). Program inputs, values that another region's forward calls read, and values
// outside of regions are never recomputed. Exact copies (phase recompute) of the forward calls that are needed
// precede the region's first backward call.
// An offloaded value is copied to the host after the call that defines it, and back before the first that reads it in the
// backward pass (schedule_transfers moves the copies away from them). Program inputs and outputs, and values
// below the limits, stay on the device.
// `matched`, if given, receives for each rule whether it decided anything.
kernels::Program rematerialize(kernels::Program program, const kernels::Catalog& catalog,
                               const std::vector<RematRule>& rules, std::vector<char>* matched = nullptr,
                               const OffloadLimits& limits = {});

}  // namespace meshloom::trainer
