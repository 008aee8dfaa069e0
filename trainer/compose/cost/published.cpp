#include "trainer/compose/cost/published.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "embedded_efficiencies.h"
#include "hal/error.h"
#include "kernels/core/contract.h"
#include "kernels/flash_attention/flash_attention.h"
#include "kernels/grouped_matmul/grouped_matmul.h"
#include "kernels/matmul/matmul.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {

std::string_view to_string(CallCost::Kind kind) {
  switch (kind) {
    case CallCost::Kind::matmul:
      return "matmul";
    case CallCost::Kind::attention:
      return "attention";
    case CallCost::Kind::attention_grad:
      return "attention_grad";
    case CallCost::Kind::other:
      return "other";
  }
  return "";
}

CallCost call_cost(const kernels::CallView& call, double flops, double bytes) {
  CallCost cost;
  cost.flops = flops;
  cost.bytes = bytes;
  const auto size = [](std::int64_t value) { return static_cast<double>(value); };
  if (call.op == "matmul") {
    const kernels::MatmulDims dims = kernels::matmul_dims(call);
    cost.kind = CallCost::Kind::matmul;
    cost.groups = size(dims.g), cost.m = size(dims.m), cost.n = size(dims.n), cost.k = size(dims.k);
  } else if (call.op == "grouped_matmul" || call.op == "grouped_outer") {
    cost.kind = CallCost::Kind::matmul;
    const kernels::Shape &a = call.inputs[0].shape, &b = call.inputs[1].shape, &out = call.outputs[0].shape;
    const bool outer = call.op == "grouped_outer";
    cost.groups = size(outer ? out[0] : b[0]);
    const double rows = size(a[0]) / cost.groups;  // of an even load
    cost.m = outer ? size(a[1]) : rows;
    cost.n = size(outer ? b[1] : out[1]);
    cost.k = outer ? rows : size(a[1]);
  } else if (call.op == "flash_attention" || call.op == "flash_attention_grad") {
    const kernels::Shape &q = call.inputs[0].shape, &k = call.inputs[1].shape;
    cost.kind = call.op == "flash_attention" ? CallCost::Kind::attention : CallCost::Kind::attention_grad;
    cost.groups = size(q[0] * q[2]), cost.m = size(q[1]), cost.n = size(k[1]), cost.k = size(q[3]);
  }
  return cost;
}

double call_seconds(const CallCost& cost, const CallConstants& constants, double peak, double memory_rate) {
  double efficiency = 0;  // 0 = what bounds it is memory
  if (cost.kind == CallCost::Kind::matmul)
    efficiency = constants.matmul * (cost.fp8 ? constants.fp8 : 1) * cost.m /
                 (cost.m + constants.matmul_rows) * cost.n / (cost.n + constants.matmul_sides) * cost.k /
                 (cost.k + constants.matmul_sides);
  else if (cost.kind != CallCost::Kind::other)
    efficiency = constants.attention *
                 (cost.kind == CallCost::Kind::attention_grad ? constants.attention_grad : 1) * cost.k /
                 (cost.k + constants.attention_head) * cost.m / (cost.m + constants.attention_rows);
  const double memory = cost.bytes / (memory_rate * constants.memory);
  const double computing = efficiency > 0 ? cost.flops / (peak * efficiency) : 0;
  return constants.launch + std::max(computing, memory);
}

const CallConstants* published_constants(const std::string& profile) {
  static const std::map<std::string, CallConstants> all = [] {
    constexpr int kDepth = 4;
    std::map<std::string, CallConstants> parsed;
    for (const embedded::File& file : embedded::efficiencies()) {
      const std::string where = "efficiencies '" + std::string(file.name) + "' in the program";
      const auto json = parse_json(file.text, where, "the file", kDepth).at("published");
      if (json.at("source").get<std::string>().empty())
        throw Error(where, "published efficiencies must name their source");
      const auto& calls = json.at("calls");
      for (const auto& chip : json.at("chips")) {
        const CallConstants constants{.matmul = chip.at("matmul"),
                                      .matmul_rows = calls.at("matmul_rows"),
                                      .matmul_sides = calls.at("matmul_sides"),
                                      .fp8 = calls.at("fp8"),
                                      .attention = chip.at("attention"),
                                      .attention_grad = calls.at("attention_grad"),
                                      .attention_head = calls.at("attention_head"),
                                      .attention_rows = calls.at("attention_rows"),
                                      .memory = calls.at("memory"),
                                      .launch = calls.at("launch")};
        for (const double part : {constants.matmul, constants.attention, constants.memory})
          if (!(part > 0 && part <= 1))
            throw Error(where, "an efficiency must be above 0, and 1 at most", shown_json(chip));
        parsed[chip.at("profile")] = constants;
      }
    }
    return parsed;
  }();
  const auto found = all.find(profile);
  return found == all.end() ? nullptr : &found->second;
}

double published_seconds(const Plan& plan, const CallConstants& constants, const hal::Profile& profile) {
  const double peak = profile.flops(hal::DType::bf16), memory = profile.memory_bytes_per_second;
  double sum = 0;
  for (const UpdateStep& step : plan.steps.update) {
    const PlannedProgram& planned = plan.steps.at(step.step);
    if (planned.on_host) continue;
    for (const kernels::Call& call : planned.program.calls) {
      if (!call.choice) continue;
      const kernels::Contract& contract = *call.choice->variant->contract;
      if (contract.view || contract.moves) continue;
      const kernels::CallTypes types(planned.program, call);
      const kernels::CallView view = types.view(call);
      sum +=
          static_cast<double>(step.times) *
          call_seconds(call_cost(view, contract.flops(view), contract.bytes(view)), constants, peak, memory);
    }
  }
  return sum;
}

}  // namespace meshloom::trainer
