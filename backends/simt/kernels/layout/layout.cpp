// Changes of order and of place: permute, stack, slices, iota.
#include <algorithm>
#include <array>
#include <utility>

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

Fit fit(const CallView& call, const hal::DeviceInfo&) {
  const std::string reason = unsupported_dtype(call);
  return reason.empty() ? Fit::yes() : Fit::no(reason);
}

Fit fit_any(const CallView&, const hal::DeviceInfo&) { return Fit::yes(); }

void encode_permute(const EncodeArgs& args) {
  const kernels::Shape& in = args.call.inputs[0].shape;
  const std::vector<std::int64_t>& order = args.call.attrs.list("order");
  const std::size_t rank = in.size();
  std::array<std::int64_t, 4> dims{1, 1, 1, 1}, strides{0, 0, 0, 0};
  for (std::size_t i = 0; i < rank; ++i) {
    const auto from = static_cast<std::size_t>(order[i]);
    std::int64_t stride = 1;
    for (std::size_t j = from + 1; j < rank; ++j) stride *= in[j];
    dims[4 - rank + i] = in[from];
    strides[4 - rank + i] = stride;
  }
  const std::int64_t count = args.call.inputs[0].elements();
  launch(args, {.kernel = "permute",

                .bindings = {reads(args.inputs[0]), writes(args.outputs[0])},
                .constants = {hal::word(count), hal::word(dims[1]), hal::word(dims[2]), hal::word(dims[3]),
                              hal::word(strides[0]), hal::word(strides[1]), hal::word(strides[2]),
                              hal::word(strides[3])},
                .items = count});
}

// A copy of four bytes takes longer to start than a kernel, above all on GPUs.
void encode_stack(const EncodeArgs& args) {
  constexpr std::size_t kTensors = 7;
  for (std::size_t first = 0; first < args.inputs.size(); first += kTensors) {
    const std::size_t count = std::min(kTensors, args.inputs.size() - first);
    std::vector<hal::Binding> bindings;
    for (std::size_t i = 0; i < kTensors; ++i)
      bindings.push_back(reads(slice(args.inputs[i < count ? first + i : first], 0, 4)));
    bindings.push_back(writes(args.outputs[0]));
    const auto items = static_cast<std::int64_t>(count);
    if (first > 0) args.commands.barrier();  // they write neighbours, whose places cannot be bound apart
    launch(args, {.kernel = "stack",
                  .bindings = std::move(bindings),
                  .constants = {hal::word(static_cast<std::int64_t>(first)), hal::word(items)},
                  .items = items});
  }
}

// Slices lie one behind the other in the whole tensor.
void encode_split(const EncodeArgs& args) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < args.outputs.size(); ++i) {
    const std::int64_t bytes = args.call.outputs[i].bytes();
    args.commands.copy(reads(slice(args.inputs[0], at, bytes)), writes(slice(args.outputs[i], 0, bytes)),
                       args.label);
    at += bytes;
  }
}

void encode_join(const EncodeArgs& args) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < args.inputs.size(); ++i) {
    const std::int64_t bytes = args.call.inputs[i].bytes();
    args.commands.copy(reads(slice(args.inputs[i], 0, bytes)), writes(slice(args.outputs[0], at, bytes)),
                       args.label);
    at += bytes;
  }
}

void encode_iota(const EncodeArgs& args) {
  const std::int64_t count = args.call.outputs[0].elements();
  launch(args, {.kernel = "iota",

                .bindings = {writes(args.outputs[0])},
                .constants = {hal::word(count)},
                .items = count});
}

}  // namespace

std::vector<kernels::OpVariants> layout_ops() {
  return {{"permute", {simt_variant("one invocation per element, writes in order", fit, encode_permute)}},
          {"stack", {simt_variant("seven tensors per kernel", fit_any, encode_stack)}},
          {"split", {simt_variant("copies", fit_any, encode_split)}},
          {"concat_rows", {simt_variant("copies", fit_any, encode_join)}},
          {"iota", {simt_variant("one invocation per element", fit, encode_iota)}}};
}

}  // namespace meshloom::backends::simt
