#include "layers/wrappers/monitor.h"

#include <algorithm>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/attention/mask.h"
#include "layers/config/tree.h"
#include "layers/core/experts.h"

namespace meshloom::layers {
namespace {

// The root mean square of the rows where `tokens` (rows) is 1; of all rows if it is an empty tensor.
Tensor rms(Tensor x, Tensor tokens) {
  const Tensor squares = kernels::mul(x, x);
  const auto [sum, count] = kernels::inputs<2>();
  if (!tokens)
    return kernels::elementwise({kernels::reduce_sum(squares, 0)},
                                sqrt(sum / static_cast<double>(x.type().elements())));
  const Tensor sums = kernels::matmul(kernels::reshape(tokens, {1, x.type().dim(0)}), squares);
  return kernels::elementwise({kernels::reduce_sum(sums, 0), kernels::reduce_sum(tokens, 0)},
                              sqrt(sum / (static_cast<double>(x.type().dim(-1)) * max(count, 1))));
}

}  // namespace

std::unique_ptr<Module> Monitor::Config::build(const Place& place) const {
  return std::make_unique<Monitor>(*this, place);
}

Monitor::Monitor(const Config& config, const Place& place)
    : Layer(place), base_(&inner(config.base, config.dims)), report_(config.report) {
  const std::vector<std::string> known{"rms", "input_rms", "gain"};
  for (const std::string& name : report_)
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail("report must name rms, input_rms or gain" + suggestion(name, known), "'" + name + "'");
  if (report_.empty()) fail("report must not be empty", "[]");
}

Tensor Monitor::forward(Context& ctx, Tensor x) {
  const Tensor y = base_->forward(ctx, x);
  if (!ctx.training()) return y;
  const std::int64_t rows = x.type().dim(0);
  const Segments* segments = inherited<Experts>() ? nullptr : ctx.find<Segments>();
  const Tensor tokens =
      segments && segments->ids.type().elements() == rows ? token_mask(ctx, rows) : Tensor{};
  const auto reported = [&](const char* name) {
    return std::find(report_.begin(), report_.end(), name) != report_.end();
  };
  const bool gain = reported("gain"), output = reported("rms"), input = reported("input_rms");
  const Tensor of_y = output || gain ? rms(y, tokens) : Tensor{},
               of_x = input || gain ? rms(x, tokens) : Tensor{};
  if (output) ctx.summary("rms", of_y);
  if (input) ctx.summary("input_rms", of_x);
  const auto [rms_out, rms_in] = kernels::inputs<2>();
  if (gain) ctx.summary("gain", kernels::elementwise({of_y, of_x}, rms_out / rms_in));
  return y;
}

void add_monitor_classes(ClassTable& classes) { classes.add<Monitor::Config>(); }

}  // namespace meshloom::layers
