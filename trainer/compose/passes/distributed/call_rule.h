// The partition rules of a program's calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/core/partition_rule.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// Throws Error, with the program and the call, where the rule does not suit it.
kernels::PartitionRule rule_of(const kernels::Program& program, const kernels::Call& call,
                               const kernels::Catalog& catalog);

// The sizes of the dimensions under a letter, of tensors of these types whose dimensions have these letters.
std::vector<std::int64_t> sizes_of(char letter, const std::vector<std::string>& letters,
                                   const std::vector<kernels::TensorType>& types);

}  // namespace meshloom::trainer
