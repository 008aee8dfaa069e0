// Kernels that read and write tensors of any float dtype in packs of neighbours (dialect/pack.inc).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {

// Elements of a pack that has 16 bytes of the call's narrowest float; on CPUs 8, which is a vector.
std::int64_t wide_pack(const kernels::CallView& call, const hal::DeviceInfo& target);

// What an OpenCL compiler for CPUs makes the faster code of, in f32: single floats in a loop that it turns into vectors, or packs,
// where there are loops inside.
enum class HostForm { single, packs };

// Fits with the parameter "pack": wide_pack where every one of `extents` is a multiple of it and the device gains by it; else 1.
// No where that needs 16-bit floats that the device cannot read and write one at a time, and for other dtypes.
kernels::Fit fit_packs(const kernels::CallView& call, const hal::DeviceInfo& target,
                       std::span<const std::int64_t> extents, HostForm host = HostForm::single);
// The other width, where there is one.
std::vector<kernels::Fit> other_packs(const kernels::CallView& call, const hal::DeviceInfo& target,
                                      std::span<const std::int64_t> extents,
                                      HostForm host = HostForm::single);

// How a workgroup takes a row of n elements (dialect/row_batches.inc).
struct RowBatches {
  std::uint32_t width = 1;  // invocations of the workgroup
  std::int64_t steps = 1;   // packs of an invocation that are loaded at a time
  bool held = false;        // all of the row at a time
};
// `floats`: so many of a row an invocation may hold on a GPU; above `comfortable` more invocations share it.
RowBatches row_batches(const hal::DeviceInfo& target, std::int64_t n, std::int64_t pack, std::int64_t floats,
                       std::int64_t comfortable);
std::vector<hal::Define> batch_defines(const RowBatches& batches);

// PACK and NARROW.
std::vector<hal::Define> pack_defines(const kernels::CallView& call, std::int64_t pack);
hal::Define dtype_define(const char* name, const kernels::TensorType& type);

}  // namespace meshloom::backends::simt
