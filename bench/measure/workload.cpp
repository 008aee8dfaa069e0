#include "bench/measure/workload.h"

#include "hal/error.h"
#include "kernels/core/call_parser.h"
#include "kernels/program/call_text.h"
#include "trainer/compose/passes/select.h"

namespace meshloom::bench {

std::string Workload::call() const { return kernels::call_text(contract->name, inputs, attrs); }

kernels::DType Workload::dtype() const {
  for (const auto* types : {&inputs, &outputs})
    for (const kernels::TensorType& type : *types)
      if (hal::is_float(type.dtype)) return type.dtype;
  return outputs.empty() ? kernels::DType::f32 : outputs.front().dtype;
}

Workload make_workload(const kernels::Contract& contract, const kernels::Case& item) {
  Workload result;
  result.contract = &contract;
  result.label = item.name;
  result.inputs = item.inputs;
  result.attrs = item.attrs;
  result.outputs = contract.infer(item.inputs, item.attrs);
  result.shape = shape_text(result);
  return result;
}

std::vector<Workload> parse_shapes(const kernels::Catalog& catalog, const std::string& op,
                                   std::string_view text, kernels::DType dtype) {
  const kernels::Contract& contract = catalog.contract(op);
  std::vector<Workload> result;
  for (const kernels::ParsedCall& item : kernels::parse_calls(contract, text, dtype, "--shapes")) {
    result.push_back(make_workload(contract, item.call));
    if (!item.shape.empty()) result.back().shape = item.shape;
  }
  return result;
}

std::string shape_text(const Workload& workload) {
  return kernels::shape_text(*workload.contract, workload.view(), workload.dtype());
}

std::vector<Workload> case_workloads(const kernels::Contract& contract, kernels::DType dtype) {
  std::vector<Workload> slow, all;
  for (const kernels::Case& item : contract.cases()) {
    std::optional<kernels::Case> narrow;
    if (hal::is_low_precision(dtype)) narrow = kernels::to_low_precision(contract, item, dtype);
    all.push_back(make_workload(contract, narrow ? *narrow : item));
    if (item.slow) slow.push_back(all.back());
  }
  return slow.empty() ? all : slow;
}

kernels::Choice selected(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                         const Workload& workload) {
  if (workload.planned) return *workload.planned;
  return trainer::select_one(catalog, device, workload.contract->name, workload.inputs, workload.attrs);
}

}  // namespace meshloom::bench
