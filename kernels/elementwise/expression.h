// The little language of the elementwise op: a DAG of scalar f32 operations.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace meshloom::kernels {

enum class ExprOp : std::uint8_t {
  input,     // x<index>
  constant,  // a decimal number
  add,
  sub,
  mul,
  div,
  max,
  min,
  gt,  // a > b ? 1 : 0
  neg,
  abs,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  sigmoid,
  erf,
  is_finite,  // 1 unless NaN or infinite
  select,  // select(c, a, b): a where c != 0, else b; the other side may be NaN. Node operands in this order
  eq,      // a == b ? 1 : 0
  floor,
  mod,  // a - b floor(a / b), of the sign of b: exact for integers, whatever the machine's division rounds to
};
int arity(ExprOp op);
std::string_view to_string(ExprOp op);

struct ExprNode {
  ExprOp op;
  std::int32_t a = -1, b = -1, c = -1;  // operand nodes, always earlier in the list
  std::int32_t index = 0;               // of input
  double value = 0;                     // of constant
  bool operator==(const ExprNode&) const = default;
};

// Nodes in evaluation order without duplicates (equal subexpressions are one node); one root per output.
struct Expression {
  std::vector<ExprNode> nodes;  // add() alone appends
  std::vector<std::int32_t> roots;
  std::int32_t inputs = 0;  // 1 + the largest input index used

  std::int32_t add(ExprNode node);  // index of the node, reusing an equal one; folds constants

 private:
  struct Hash {
    std::size_t operator()(const ExprNode& node) const;
  };
  std::unordered_map<ExprNode, std::int32_t, Hash> known_;  // index of every node
};

// A kernel is compiled for each expression, and every node is a line of it.
inline constexpr std::size_t kMaxExpressionNodes = 4096;

// Function notation, several roots joined by ";"; "t0=EXPR;" names a shared part and is no root:
// "t0=sigmoid(x0);mul(x0,t0);t0". Operators are read too, those that bind least first: or, and, not; < <= > >= == != (of
// several all must hold: 0 <= x0 < 8); + -; * / // % (floors, both); -. What is not 0 counts as true, truth is 1.
// `names` are what inputs are called, in place of x0, x1, ... Throws Error with the position, also where more than
// kMaxExpressionNodes nodes are needed or the text nests deeper than 1000.
Expression parse_expression(std::string_view text, const std::vector<std::string>& names = {});
// The same of x0, x1, ..., kept for the next time that a thread asks for the text: a program has few, which every pass reads.
std::shared_ptr<const Expression> parsed_expression(std::string_view text);
// In function notation, as long as the nodes are many: what is used twice, or would nest too deep to be read again, is
// printed once, as a temporary.
std::string to_string(const Expression& expression);
// How many nodes compute something.
std::int64_t operations(const Expression& expression);
// Evaluates one element in double; `values` holds the inputs, `out` one slot per root.
void evaluate(const Expression& expression, const double* values, double* out);
// d(sum over roots of root_r * dy_r)/d(input_i) as a new expression whose inputs are x0..x(n-1) followed by
// dy_0..dy_(roots-1); one root per entry of `wrt`.
Expression differentiate(const Expression& expression, const std::vector<std::int32_t>& wrt);
// Replaces input `index` of `consumer` by root `root` of `producer`; `consumer_map` and `producer_map` give
// the new input index of each old input (-1: not used).
Expression compose(const Expression& consumer, std::int32_t index, const Expression& producer,
                   std::int32_t root, const std::vector<std::int32_t>& consumer_map,
                   const std::vector<std::int32_t>& producer_map);

}  // namespace meshloom::kernels
