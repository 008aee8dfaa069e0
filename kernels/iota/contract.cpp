#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/iota/iota.h"

namespace meshloom::kernels {
namespace {

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("iota", inputs, attrs);
  rules.inputs({});
  rules.attributes({"count"});
  const std::int64_t count = rules.integer("count");
  rules.require(count > 0 && count < (std::int64_t{1} << 31), "count must be positive and fit an i32",
                std::to_string(count));
  return {{DType::i32, {count}}};
}

void reference(const CallView& call, std::span<const ConstTensorView>, std::span<const TensorView> outputs) {
  for (std::int64_t i = 0; i < call.outputs[0].elements(); ++i)
    outputs[0].as<std::int32_t>()[i] = static_cast<std::int32_t>(i);
}

std::string partition(const CallView&) { return "->."; }
Tolerance tolerance(const CallView&) { return {}; }

Case counting(std::int64_t count) { return {std::to_string(count), {}, {{"count", count}}}; }
std::vector<Case> cases() { return {counting(1), counting(7), counting(64), counting(257), counting(4099)}; }
Case random_case(const CaseSeed& seed) { return counting(Rng(seed).extent(3000)); }

}  // namespace

Tensor iota(Builder& builder, std::int64_t count) { return builder.call1("iota", {}, {{"count", count}}); }

void add_iota(Catalog& catalog) {
  catalog.add(Contract{.name = "iota",
                       .infer = infer,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = never_in_place,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels
