// Rows of a pool overwritten at given places; in place nothing else of the pool is touched.
#include "kernels/index_copy/index_copy.h"

#include <array>
#include <string>
#include <utility>

#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

// Integers of eight bits are moved as words of four.
bool of_words(const CallView& call) { return hal::size_of(call.inputs[0].dtype) == 1; }

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const std::int64_t width = kernels::index_copy_dims(call).width;
  if (!of_words(call)) return fit_packs(call, target, std::array{width});
  if (width % 4 != 0)
    return Fit::no("moves integers of eight bits as whole words, which a row of " + std::to_string(width) +
                   " is not");
  const std::string reason = unsupported_size(call);
  return reason.empty() ? Fit::yes({{"pack", 1}}) : Fit::no(reason);
}

std::vector<Fit> alternatives(const CallView& call, const hal::DeviceInfo& target) {
  if (of_words(call)) return {};
  return other_packs(call, target, std::array{kernels::index_copy_dims(call).width});
}

void encode(const EncodeArgs& args) {
  const kernels::IndexCopyDims d = kernels::index_copy_dims(args.call);
  if (!hal::same_place(args.inputs[0], args.outputs[0])) {
    args.commands.copy(reads(whole_words(args.inputs[0])), writes(whole_words(args.outputs[0])), args.label);
    args.commands.barrier();
  }
  const bool words = of_words(args.call);
  const std::int64_t parts = words ? 4 : 1, count = args.call.inputs[1].elements() / parts,
                     pack = args.choice.params.at("pack");
  std::vector<hal::Define> defines = pack_defines(args.call, pack);
  defines.push_back(define("WORDS", words));
  defines.push_back(words ? define("POOL_TYPE", 0) : dtype_define("POOL_TYPE", args.call.inputs[0]));
  defines.push_back(words ? define("X_TYPE", 0) : dtype_define("X_TYPE", args.call.inputs[1]));
  launch(args, {.kernel = "index_copy",
                .defines = std::move(defines),
                .bindings = {reads(whole_words(args.inputs[1])), reads(args.inputs[2]),
                             reads_and_writes(whole_words(args.outputs[0]))},
                .constants = {hal::word(count), hal::word(d.width / parts), hal::word(d.slots)},
                .items = count / pack,
                .pack = pack});
}

}  // namespace

std::vector<kernels::OpVariants> index_copy_ops() {
  kernels::Variant variant = simt_variant("one invocation per element or pack of them", fit, encode, true);
  variant.alternatives = alternatives;
  return {{"index_copy", {variant}}};
}

}  // namespace meshloom::backends::simt
