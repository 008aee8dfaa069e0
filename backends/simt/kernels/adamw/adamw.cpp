// AdamW, one pass over the parameter and its moments, with or without a copy of the parameter in 16 bits.
#include "backends/simt/kernels/adamw/adamw.h"

#include <cmath>

#include "backends/simt/host/packs.h"
#include "backends/simt/kernels/cast/cast.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;

constexpr std::size_t kP = 0, kG = 1, kM = 2, kV = 3, kControl = 4, kCopy = 3;

void update(const EncodeArgs& args) {
  const std::int64_t count = args.call.inputs[kP].elements();
  launch(args, {.kernel = "adamw",
                .defines = {define("COPY", 0), define("QUADS", count % 4 == 0 ? 1 : 0)},
                .bindings = plain_update_bindings(args),
                .constants = adamw_constants(count, args.call.attrs),
                .items = (count + 3) / 4});
}

bool in_place(const EncodeArgs& args) {
  return hal::same_place(args.inputs[kP], args.outputs[0]) &&
         hal::same_place(args.inputs[kM], args.outputs[1]) &&
         hal::same_place(args.inputs[kV], args.outputs[2]);
}

void update_with_copy(const EncodeArgs& args) {
  const std::int64_t count = args.call.inputs[kP].elements(), wide = wide_pack(args.call, args.device.info());
  const std::int64_t pack = count % wide == 0 ? wide : 1;
  launch(args, {.kernel = "adamw",
                // Without packs a word at a time, which needs no 16-bit storage.
                .defines = {dtype_define("COPY", args.call.outputs[kCopy]), define("PACK", pack),
                            define("NARROW", pack > 1 ? 1 : 0)},
                .bindings = fused_update_bindings(args),
                .constants = adamw_constants(count, args.call.attrs),
                .items = ceil_div(count, pack > 1 ? pack : 2),
                .pack = pack});
}

void encode(const EncodeArgs& args) { record_update(args, update, update_with_copy); }

}  // namespace

void record_update(const EncodeArgs& args, RecordUpdate plain, RecordUpdate fused) {
  if (!args.call.attrs.has("dtype")) return plain(args);
  if (in_place(args)) return fused(args);
  plain(args);
  args.commands.barrier();
  record_cast(args, args.call.outputs[0], args.call.outputs[kCopy], args.outputs[0], args.outputs[kCopy]);
}

std::vector<hal::Binding> plain_update_bindings(const EncodeArgs& args) {
  std::vector<hal::Binding> bindings;
  for (const hal::Binding& binding : args.inputs) bindings.push_back(reads(binding));
  for (const hal::Binding& binding : args.outputs.first(kCopy)) bindings.push_back(writes(binding));
  return bindings;
}

std::vector<hal::Binding> fused_update_bindings(const EncodeArgs& args) {
  return {reads_and_writes(args.inputs[kP]), reads(args.inputs[kG]),
          reads_and_writes(args.inputs[kM]), reads_and_writes(args.inputs[kV]),
          reads(args.inputs[kControl]),      writes(whole_words(args.outputs[kCopy]))};
}

std::vector<hal::Word> adamw_constants(std::int64_t count, const kernels::Attrs& attrs) {
  const double beta1 = attrs.number("beta1"), beta2 = attrs.number("beta2");
  std::vector<hal::Word> constants{hal::word(count)};
  for (double value : {beta1, beta2, std::log(beta1), std::log(beta2), attrs.number("eps"),
                       attrs.number("weight_decay"), 1 - beta1, 1 - beta2})
    constants.push_back(hal::word(static_cast<float>(value)));
  return constants;
}

std::vector<kernels::OpVariants> adamw_ops() {
  return {{"adamw", {simt_variant("one pass, in place", fit_any_dtype, encode, true)}}};
}

}  // namespace meshloom::backends::simt
