// What the contracts of AdamW's ops share.
#pragma once

#include "kernels/adamw/adamw.h"
#include "kernels/core/rules.h"

namespace meshloom::kernels::adamw_parts {

enum Input : int { kP, kG, kM, kV, kControl };
enum Output : int { kCopy = 3 };
enum Control : int { kRate, kScale, kApply, kStep };

// The attributes of a call, and the rules for them.
Attrs attributes(const AdamWOptions& options);
void require_attributes(const Rules& rules);

}  // namespace meshloom::kernels::adamw_parts
