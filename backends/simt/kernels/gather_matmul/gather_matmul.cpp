// Products whose matrix is chosen for each row.
#include "kernels/gather_matmul/gather_matmul.h"

#include <array>
#include <utility>

#include "backends/simt/host/packs.h"

namespace meshloom::backends::simt {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  const Fit found = fit_packs(call, target, std::array{std::int64_t{1}});
  if (!found.ok) return found;
  if (std::string reason =
          unsupported_iterations(target, static_cast<double>(kernels::gather_matmul_dims(call).k));
      !reason.empty())
    return Fit::no(std::move(reason));
  return found;
}

void encode(const EncodeArgs& args) {
  const kernels::GatherMatmulDims d = kernels::gather_matmul_dims(args.call);
  std::vector<hal::Define> defines = pack_defines(args.call, 1);
  defines.push_back(dtype_define("X_TYPE", args.call.inputs[0]));
  defines.push_back(dtype_define("W_TYPE", args.call.inputs[1]));
  defines.push_back(define("TRANS_B", d.trans_b ? 1 : 0));
  defines.push_back(define("RESIDUAL", d.residual ? 1 : 0));
  const auto words = [&](std::size_t index) { return reads(whole_words(args.inputs[index])); };
  launch_rows(args, d.m * d.n,
              {.kernel = "gather_matmul",
               .defines = std::move(defines),
               .bindings = {words(0), words(1), reads(args.inputs[2]), words(d.residual ? 3 : 0),
                            writes(whole_words(args.outputs[0]))},
               .constants = {hal::word(d.m * d.n), hal::word(d.n), hal::word(d.k), hal::word(d.s)}});
}

}  // namespace

std::vector<kernels::OpVariants> gather_matmul_ops() {
  return {{"gather_matmul", {simt_variant("one invocation per output", fit, encode, true)}}};
}

}  // namespace meshloom::backends::simt
