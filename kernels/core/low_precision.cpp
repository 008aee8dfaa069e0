// Contracts on 16-bit floats.
#include <cstring>
#include <utility>

#include "hal/error.h"
#include "hal/low_precision.h"
#include "kernels/core/contract.h"

namespace meshloom::kernels {

TensorType widened(TensorType type) {
  if (hal::is_low_precision(type.dtype)) type.dtype = DType::f32;
  return type;
}

std::vector<TensorType> widened(std::vector<TensorType> types) {
  for (TensorType& type : types) type = widened(std::move(type));
  return types;
}

bool any_low_precision(const CallView& call) {
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const TensorType& type : *types)
      if (hal::is_low_precision(type.dtype)) return true;
  return false;
}

HostTensor widened(const ConstTensorView& tensor) {
  HostTensor result(widened(tensor.type));
  const std::int64_t count = tensor.type.elements();
  const auto convert = [&](float (*from)(std::uint16_t)) {
    for (std::int64_t i = 0; i < count; ++i) result.as<float>()[i] = from(tensor.as<std::uint16_t>()[i]);
  };
  if (tensor.type.dtype == DType::bf16)
    convert(hal::from_bf16);
  else if (tensor.type.dtype == DType::f16)
    convert(hal::from_f16);
  else
    std::memcpy(result.data.data(), tensor.data, result.data.size());
  return result;
}

void narrow(const HostTensor& from, const TensorView& into) {
  const std::int64_t count = into.type.elements();
  const auto convert = [&](std::uint16_t (*to)(float)) {
    for (std::int64_t i = 0; i < count; ++i) into.as<std::uint16_t>()[i] = to(from.as<float>()[i]);
  };
  if (into.type.dtype == DType::bf16)
    convert(hal::to_bf16);
  else if (into.type.dtype == DType::f16)
    convert(hal::to_f16);
  else
    std::memcpy(into.data, from.data.data(), from.data.size());
}

void run_reference(const Contract& contract, const CallView& call, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs) {
  if (!any_low_precision(call)) return contract.reference(call, inputs, outputs);
  const std::vector<TensorType> in = widened(call.inputs), out = widened(call.outputs);
  std::vector<HostTensor> wide_in, wide_out;
  std::vector<ConstTensorView> from;
  std::vector<TensorView> to;
  for (const ConstTensorView& input : inputs) wide_in.push_back(widened(input));
  for (const TensorType& type : out) wide_out.emplace_back(type);
  for (const HostTensor& tensor : wide_in) from.push_back({tensor.type, tensor.data.data()});
  for (HostTensor& tensor : wide_out) to.push_back({tensor.type, tensor.data.data()});
  contract.reference({call.op, in, out, call.attrs}, from, to);
  for (std::size_t o = 0; o < outputs.size(); ++o) narrow(wide_out[o], outputs[o]);
}

std::optional<Case> to_low_precision(const Contract& contract, Case wide, DType dtype) {
  if (!contract.low_precision) return std::nullopt;
  const std::vector<TensorType> outputs = contract.infer(wide.inputs, wide.attrs);
  const LowPrecision how = contract.low_precision({contract.name, wide.inputs, outputs, wide.attrs});
  bool changed = how.attribute;
  for (const std::vector<int>* list : {&how.same, &how.any})
    for (int input : *list) {
      TensorType& type = wide.inputs.at(static_cast<std::size_t>(input));
      changed = changed || type.dtype == DType::f32;
      if (type.dtype == DType::f32) type.dtype = dtype;
    }
  if (!changed) return std::nullopt;
  if (how.attribute) wide.attrs.set("dtype", std::string(hal::to_string(dtype)));
  wide.name += "-" + std::string(hal::to_string(dtype));
  return wide;
}

}  // namespace meshloom::kernels
