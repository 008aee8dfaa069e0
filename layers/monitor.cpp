#include "layers/monitor.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

Tensor rms(Tensor x) {
  const Tensor sum = kernels::reduce_sum(kernels::mul(x, x), 0);
  return kernels::elementwise({sum}, fmt::format("sqrt(div(x0,{}))", x.type().elements()));
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
      fail("what is reported is rms, input_rms or gain" + suggestion(name, known), "'" + name + "'");
  if (report_.empty()) fail("something is reported", "none");
}

Tensor Monitor::forward(Context& ctx, Tensor x) {
  const Tensor y = base_->forward(ctx, x);
  if (!ctx.training()) return y;
  for (const std::string& name : report_)
    ctx.summary(name, name == "rms"         ? rms(y)
                      : name == "input_rms" ? rms(x)
                                            : kernels::elementwise({rms(y), rms(x)}, "div(x0,x1)"));
  return y;
}

void add_monitor_classes(ClassTable& classes) { classes.add<Monitor::Config>(); }

}  // namespace meshloom::layers
