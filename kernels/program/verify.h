// Checks every rule a program must keep, after every pass.
#pragma once

#include <string_view>

#include "kernels/program/program.h"

namespace meshloom::kernels {

class Catalog;

// Throws Error naming the pass, the call and the rule: every value is defined once and before its use, ops
// are known, types are what the contract infers, outputs and donations exist, a donated input is not read,
// through views either, after the call that defines the output it is donated to, axes match ranks, donated
// types match.
void verify(const Program& program, const Catalog& catalog, std::string_view pass);

}  // namespace meshloom::kernels
