// What the attention variants share: dimensions, the shape of a workgroup, the common kernels.
#pragma once

#include <string>
#include <vector>

#include "backends/simt/host/launch.h"
#include "kernels/flash_attention/flash_attention.h"

namespace meshloom::backends::simt {

// How rows map to invocations on this device: vectors of 8 in one invocation, or one row per invocation.
struct Lanes {
  std::uint32_t width;  // invocations per workgroup
  std::int64_t vector;  // LANES
  bool spread;          // SPREAD: the workgroup is a subgroup that shuffles
  std::int64_t rows() const { return vector > 1 ? vector : width; }
};
Lanes lanes_of(const hal::DeviceInfo& target);

// Refusal of what no attention kernel here takes; "" = fine. The second judges sizes only.
std::string attention_unfit(const kernels::CallView& call);
std::string attention_unfit_of_any_dtype(const kernels::CallView& call);

// D, DV, CAUSAL, EXTRAS, KEYS, LANES, what add_pair_defines adds and the modes.
std::vector<hal::Define> attention_defines(const kernels::AttentionDims& dims, const Lanes& lanes,
                                           bool staged, bool splash);

// What a call has beyond causal and full masks (EXTRAS 1). Kernels read the optional inputs but the bias from
// one binding, where they lie one behind the other: they are copied there first, since bindings are few.
// Behind a mask of bits lies its summary, by blocks of `rows` queries: a kernel skips what a block does not
// see without looking at each query.
bool has_extras(const kernels::AttentionDims& dims);
// Of that binding; 0 where only attributes are extra.
std::int64_t extras_bytes(const kernels::AttentionDims& dims, std::int64_t rows);
// Refusal reason when kernels could not index a workspace of so many bytes; "" = fine.
std::string too_large(std::int64_t workspace);
// BIAS, BITS and SEEN_ROWS, where the call has them.
void add_pair_defines(std::vector<hal::Define>& defines, const kernels::AttentionDims& dims,
                      std::int64_t rows);
// What a forward kernel with EXTRAS binds for them, and for the bias; where there are none in memory,
// something it does not read.
void bind_extras(Launch& forward, const kernels::EncodeArgs& args, const kernels::AttentionDims& dims,
                 std::int64_t rows);
// Records what puts them at byte `at` of the workspace; a barrier must follow.
void place_extras(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, std::int64_t at,
                  std::int64_t rows);
// left ... soft_cap, the constants that extras add, with the optional inputs from byte `at` of their binding.
void add_extra_constants(std::vector<hal::Word>& constants, const kernels::AttentionDims& dims,
                         std::int64_t at);

// s_len ... scale, the first seven constants of every kernel. `blocks` per head of `heads` heads.
std::vector<hal::Word> attention_constants(const kernels::AttentionDims& dims, std::int64_t blocks,
                                           std::int64_t heads);

// Bytes of delta, a multiple of every offset alignment.
std::int64_t delta_bytes(const kernels::AttentionDims& dims);
// Where a backward pass has its extras in the workspace: behind delta and, with a bias, lse.
std::int64_t grad_extras_at(const kernels::AttentionDims& dims);
// A kernel `delta` comes without bindings, constants and sizes; without a name it is the one of f32.
void launch_delta(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, hal::Binding into,
                  Launch delta = {});

// The backward passes from delta (see launch_delta) to dsink around a kernel for dq and one for dk and dv, which
// come without bindings. `extras`: the kernels were compiled to read them.
std::int64_t grad_workspace(const kernels::AttentionDims& dims, bool extras, std::int64_t rows);
void launch_grad(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, bool extras,
                 std::int64_t rows, Launch dq, Launch dkv, Launch delta = {});
// The gradient of the bias by a kernel for dq, likewise, which takes `rows` queries and `span` keys of a bias
// at a time (OF_BIAS 1); its workspace is that of the backward passes.
void launch_bias_grad(const kernels::EncodeArgs& args, const kernels::AttentionDims& dims, std::int64_t rows,
                      std::int64_t span, Launch dq);

void add_flash_attention_partition(kernels::Catalog& catalog, const std::string& backend);
void add_flash_attention_host(kernels::Catalog& catalog);  // OpenCL only

}  // namespace meshloom::backends::simt
