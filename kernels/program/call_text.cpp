#include "kernels/program/call_text.h"

namespace meshloom::kernels {

std::string inputs_text(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  std::string text;
  for (const TensorType& type : inputs) text += (text.empty() ? "" : ", ") + to_string(type);
  if (!attrs.items().empty()) text += (text.empty() ? "" : " ") + to_string(attrs);
  return text;
}

std::string call_text(std::string_view op, const std::vector<TensorType>& inputs, const Attrs& attrs) {
  const std::string rest = inputs_text(inputs, attrs);
  return std::string(op) + (rest.empty() ? "" : " ") + rest;
}

}  // namespace meshloom::kernels
