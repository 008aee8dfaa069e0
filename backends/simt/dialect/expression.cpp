#include "backends/simt/dialect/expression.h"

#include <bit>
#include <cstdint>

namespace meshloom::backends::simt {

std::string steps(const kernels::Expression& expression,
                  const std::function<std::string(int node, int input)>& read) {
  std::string text;
  for (std::size_t i = 0; i < expression.nodes.size(); ++i) {
    const kernels::ExprNode& node = expression.nodes[i];
    const int index = static_cast<int>(i);
    if (!text.empty()) text += ' ';
    if (node.op == kernels::ExprOp::input) {
      text += read(index, node.index);
    } else if (node.op == kernels::ExprOp::constant) {
      text += "S_constant(" + std::to_string(index) + "," +
              std::to_string(std::bit_cast<std::uint32_t>(static_cast<float>(node.value))) + "u)";
    } else {
      text += "S_" + std::string(to_string(node.op)) + "(" + std::to_string(index);
      for (std::int32_t operand : {node.a, node.b, node.c})
        if (operand >= 0) text += "," + std::to_string(operand);
      text += ")";
    }
  }
  return text;
}

std::string steps(const kernels::Expression& expression) {
  return steps(expression, [](int node, int input) {
    return "S_variable(" + std::to_string(node) + "," + std::to_string(input) + ")";
  });
}

}  // namespace meshloom::backends::simt
