// One call to time: an op with shapes and attributes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"

namespace meshloom::bench {

struct Workload {
  const kernels::Contract* contract = nullptr;
  std::string shape;  // as a user types it, see shape_text
  std::string label;  // its origin: the name of a case or a module path; may be empty
  std::vector<kernels::TensorType> inputs, outputs;
  kernels::Attrs attrs;
  std::int64_t per_step = 0;               // number of calls in one step of the recipe; 0 = no recipe
  std::optional<kernels::Choice> planned;  // the choice of the recipe's plan

  kernels::CallView view() const { return {contract->name, inputs, outputs, attrs}; }
  // Canonical: "matmul f32(128, 576), f32(49152, 576) {trans_b=true}". Equal calls have equal texts.
  std::string call() const;
  kernels::DType dtype() const;  // of the first floating-point tensor
};

// Infers the outputs. Throws Error when the op does not accept the call.
Workload make_workload(const kernels::Contract& contract, const kernels::Case& item);

// The calls that `text` names, as kernels/core/call_parser.h reads it. Throws Error (where = --shapes) that says what the op
// accepts.
std::vector<Workload> parse_shapes(const kernels::Catalog& catalog, const std::string& op,
                                   std::string_view text, kernels::DType dtype);

// The text that parse_shapes reads as this call: the shorthand if there is one, else the call's text without
// the op.
std::string shape_text(const Workload& workload);

// The cases of the op that are marked for benchmarks, or all of them when none is.
std::vector<Workload> case_workloads(const kernels::Contract& contract,
                                     kernels::DType dtype = kernels::DType::f32);

// The choice of the recipe, or else the variant that composing would choose, with its tile sizes.
kernels::Choice selected(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                         const Workload& workload);

}  // namespace meshloom::bench
