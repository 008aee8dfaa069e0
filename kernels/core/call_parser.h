// Calls as a person types them, for commands that take one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/contract.h"
#include "kernels/program/program.h"

namespace meshloom::kernels {

struct ParsedCall {
  Case call;
  std::string shape;  // as it was typed, of a shorthand
};

// The calls that `text` names: shapes separated by ';' (or by ',' if 'x' separates the dimensions).
//   matmul  MxNxK or GxMxNxK, then any of :ta :tb :bias :residual :relu :silu :gelu :gelu_tanh
//   flash_attention, _grad, _bias_grad  BxSxHxKVxD (also with commas), then any of :full (not causal),
//   :t=KEYS,
//     :window=KEYS, :segments, :query_offset, :bias (one per head), :bitmask (one mask for all)
//   rms_norm, layer_norm, their _grad: ROWSxN;  cross_entropy, _grad: TOKENSxVOCABULARY;  rope: BxSxHxD
//   permute etc., and any op: what call_text prints, "f32(4, 64), f32(64) {eps=1e-05}"
// `dtype` is that of shorthands. Throws Error (where = `where`) that says what the op accepts.
std::vector<ParsedCall> parse_calls(const Contract& contract, std::string_view text, DType dtype,
                                    const std::string& where);

// The text that parse_calls reads as this call: the shorthand with `dtype` if there is one, else inputs_text.
std::string shape_text(const Contract& contract, const CallView& call, DType dtype);

}  // namespace meshloom::kernels
