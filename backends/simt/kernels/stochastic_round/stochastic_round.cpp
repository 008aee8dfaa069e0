// Rounding to bf16 with random bits, by integer arithmetic alone: the same bits on every driver.
#include "kernels/stochastic_round/stochastic_round.h"

#include "backends/simt/host/launch.h"

namespace meshloom::backends::simt {
namespace {

using kernels::EncodeArgs;

void encode(const EncodeArgs& args) {
  const std::int64_t count = args.call.inputs[0].elements();
  const kernels::StochasticRoundKeys keys = kernels::stochastic_round_keys(args.call);
  launch(args,
         {.kernel = "stochastic_round",
          .bindings = {reads(args.inputs[0]), reads(args.inputs[1]), writes(whole_words(args.outputs[0]))},
          .constants = {hal::word(count), hal::word(std::int64_t{keys.k0}), hal::word(std::int64_t{keys.k1})},
          .items = ceil_div(count, 8)});
}

}  // namespace

std::vector<kernels::OpVariants> stochastic_round_ops() {
  return {{"stochastic_round",
           {simt_variant("eight elements per invocation, words drawn on the spot", fit_any_dtype, encode,
                         true)}}};
}

}  // namespace meshloom::backends::simt
