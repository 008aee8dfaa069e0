// What the attention variants share: refusals, the shape of a workgroup, bindings and the common kernels.
#pragma once

#include <string>
#include <vector>

#include "backends/simt/host/launch.h"
#include "backends/simt/variants.h"
#include "kernels/flash_attention/flash_attention.h"

namespace meshloom::backends::simt {

// How rows are assigned to invocations on this device: 8 rows as vectors in one invocation, or one row per invocation.
struct Lanes {
  std::uint32_t width;  // invocations per workgroup
  std::int64_t vector;  // LANES
  bool shuffle;         // SHUFFLE: the workgroup is one subgroup, whose lanes exchange values by shuffles
  std::int64_t rows() const { return vector > 1 ? vector : width; }
};
Lanes lanes_of(const hal::DeviceInfo& target);

// The reason why no attention kernel here computes the call, or "". The second checks sizes only.
std::string unsupported_attention(const kernels::CallView& call);
std::string unsupported_attention_size(const kernels::CallView& call);

// D, DV, CAUSAL, EXTRAS, KEYS, LANES, the modes, and what add_bias_and_bitmask_defines adds.
std::vector<hal::Define> attention_defines(const kernels::AttentionDims& dims, const Lanes& lanes,
                                           bool staged, bool splash);

// True where a call has anything beyond causal and full masks (EXTRAS 1). Kernels read all optional inputs but the bias from
// one binding, into which they are copied first, one after the other, since kernels have few bindings. A bitmask is followed
// by its summary by blocks of `rows` queries, so that kernels skip what a block does not see without checking each query.
bool has_extras(const kernels::AttentionDims& dims);
// The bytes of that binding; 0 where the call has only attributes.
std::int64_t extras_bytes(const kernels::AttentionDims& dims, std::int64_t rows);
// The reason why kernels cannot index a workspace of so many bytes, or "".
std::string unsupported_workspace(std::int64_t workspace);
// Adds BIAS, BITMASK and SUMMARY_ROWS, where the call has them.
void add_bias_and_bitmask_defines(std::vector<hal::Define>& defines, const kernels::AttentionDims& dims,
                                  std::int64_t rows);
// Adds the bindings of the optional inputs and of the bias to a forward kernel with EXTRAS. Where there are no such inputs,
// another buffer is bound, which is not read.
void bind_extras(Launch& forward, const kernels::EncodeArgs& args, const kernels::AttentionDims& dims,
                 std::int64_t rows);
// Records the copies of the optional inputs to byte `at` of the workspace; the caller records a barrier.
void copy_extras(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, std::int64_t at,
                 std::int64_t rows);
// The optional inputs that a call has, and which of them batch rows and heads have of their own, as attention_extras.inc numbers
// them.
std::int64_t present_bits(const kernels::AttentionDims& dims);
// The same as a constant of kernels that are compiled for it, with bits for the limits of the window (LIMIT_LEFT, LIMIT_RIGHT).
std::int64_t present_options(const kernels::AttentionDims& dims);
// Adds the constants of extras, from `left` on; the optional inputs begin at byte `at` of their binding.
void add_extra_constants(std::vector<hal::Word>& constants, const kernels::AttentionDims& dims,
                         std::int64_t at);

// The first seven constants of every kernel, s_len to scale, for `heads` heads with `blocks` blocks each.
std::vector<hal::Word> attention_constants(const kernels::AttentionDims& dims, std::int64_t blocks,
                                           std::int64_t heads);

// The bytes of delta, aligned.
std::int64_t delta_bytes(const kernels::AttentionDims& dims);
// Where the extras of a backward pass begin in the workspace: after delta and, with a bias, lse.
std::int64_t grad_extras_at(const kernels::AttentionDims& dims);
// Records the kernel that computes delta. `delta` has no bindings, constants and sizes; without a name it is the f32 kernel.
void launch_delta(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, hal::Binding into,
                  Launch delta = {});

// Records the backward pass, from delta (see launch_delta) to dsink, around a kernel for dq and one for dk and dv, which have
// no bindings yet; where `dv` has a name, it is the kernel for dv, and dkv that for dk. `extras`: the kernels are compiled with
// EXTRAS 1. grad_workspace: the bytes that it needs.
std::int64_t grad_workspace(const kernels::AttentionDims& dims, bool extras, std::int64_t rows);
void launch_grad(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, bool extras,
                 std::int64_t rows, Launch dq, Launch dkv, Launch delta = {}, Launch dv = {});
// Records the gradient of the bias by a kernel for dq, which computes `rows` queries and `span` keys of a bias at a time
// (COMPUTE_DBIAS 1). Its workspace is that of the backward pass.
void launch_bias_grad(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, std::int64_t rows,
                      std::int64_t span, Launch dq);

// gpu_tile on CPU drivers of OpenCL: one row per lane, keys and values streamed through workgroup memory.
kernels::Variant flash_attention_staged(Pass pass);

}  // namespace meshloom::backends::simt
