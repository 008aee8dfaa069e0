// The pieces of the contract, one per file.
#pragma once

#include <vector>

#include "kernels/core/contract.h"
#include "kernels/paged_attention/paged_attention.h"

namespace meshloom::kernels::paged_attention_parts {

std::vector<Case> cases();
Case random_case(const CaseSeed& seed);
// Tables, query_starts and lengths as a server has them, of sequences of unlike lengths and with unlike numbers of queries.
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into);

}  // namespace meshloom::kernels::paged_attention_parts
