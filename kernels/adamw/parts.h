// What the contracts of AdamW's ops share.
#pragma once

#include <span>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/core/compare.h"
#include "kernels/core/contract.h"
#include "kernels/core/rules.h"

namespace meshloom::kernels::adamw_parts {

enum Input : int { kP, kG, kM, kV, kControl };
enum Output : int { kCopy = 3 };
enum Control : int { kRate, kScale, kApply, kStep };

// The attributes of a call, and the rules for them.
Attrs attributes(const AdamWOptions& options);
void require_attributes(const Rules& rules);

// The low-precision copy of p', where the attribute `dtype` asks for one: its type among the outputs, what the reference writes, and
// whether it is the p' of the same kernel to the bit.
bool has_copy(const CallView& call);
void add_copy(const Rules& rules, const Attrs& attrs, std::vector<TensorType>& outputs);
void reference_copy(const CallView& call, std::span<const TensorView> outputs);
Comparison judge_copy(std::span<const ConstTensorView> got);
// The case with a copy.
Case with_copy(Case made, DType dtype);

}  // namespace meshloom::kernels::adamw_parts
