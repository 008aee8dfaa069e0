#include <algorithm>
#include <set>
#include <utility>

#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/expression.h"
#include "kernels/elementwise/parts.h"
#include "kernels/elementwise/rewrite.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::kernels::elementwise_parts {
namespace {

using Index = std::int32_t;

// The inputs one root depends on.
std::set<Index> used_inputs(const Expression& e, Index root) {
  Expression alone = e;
  alone.roots = {root};
  std::set<Index> used;
  for (const ExprNode& node : compact(alone).nodes)
    if (node.op == ExprOp::input) used.insert(node.index);
  return used;
}

class Backward {
 public:
  explicit Backward(const GradientArgs& args)
      : args_(args),
        forward_(parse_expression(args.call.attrs.text("expr"))),
        shape_(args.call.attrs.list("shape")) {
    // Outputs through which nothing flows back are left out.
    std::vector<Index> roots;
    for (std::size_t r = 0; r < args.cotangents.size(); ++r) {
      if (!args.cotangents[r]) continue;
      roots.push_back(forward_.roots[r]);
      dys_.push_back(args.cotangents[r]);
    }
    forward_.roots = roots;
    forward_ = compact(forward_);
    operands_.assign(args.inputs.begin(), args.inputs.begin() + forward_.inputs);
    operands_.insert(operands_.end(), dys_.begin(), dys_.end());
  }

  std::vector<Tensor> run() {
    std::vector<Tensor> result(args_.inputs.size());
    if (dys_.empty()) return result;
    for (Index i = 0; i < forward_.inputs; ++i) wrt_.push_back(i);
    derivative_ = differentiate(forward_, wrt_);
    full_.resize(wrt_.size());
    for (std::size_t i = 0; i < wrt_.size(); ++i) take(i);
    flush();
    for (std::size_t i = 0; i < wrt_.size(); ++i)
      if (full_[i]) result[i] = cast(reduce(full_[i], args_.inputs[i].shape()), args_.inputs[i].dtype());
    return result;
  }

 private:
  // Of the derivative with respect to input i before it is reduced: what is summed anyway comes as the cotangents do.
  DType dtype_of(std::size_t i) const {
    const bool whole = elements(args_.inputs[i].shape()) == elements(shape_);
    return whole ? args_.inputs[i].dtype() : dys_.front().dtype();
  }

  // Decides where the derivative with respect to input i comes from.
  void take(std::size_t i) {
    const Index root = derivative_.roots[i];
    const ExprNode& node = derivative_.nodes[static_cast<std::size_t>(root)];
    if (node.op == ExprOp::constant && node.value == 0) return;
    if (node.op == ExprOp::input && operands_[static_cast<std::size_t>(node.index)].shape() == shape_ &&
        operands_[static_cast<std::size_t>(node.index)].dtype() == dtype_of(i)) {
      full_[i] = operands_[static_cast<std::size_t>(node.index)];
      return;
    }
    const std::set<Index> used = used_inputs(derivative_, root);
    if (used.size() + 1 > kMaxElementwiseOperands) {
      full_[i] = cast(by_parts(static_cast<Index>(i)), dtype_of(i));
      return;
    }
    std::set<Index> joint = used_;
    joint.insert(used.begin(), used.end());
    if (joint.size() + pending_.size() + 1 > kMaxElementwiseOperands ||
        (!pending_.empty() && dtype_of(pending_.front()) != dtype_of(i)))
      flush();
    used_.insert(used.begin(), used.end());
    pending_.push_back(i);
  }

  // One call for everything that is pending.
  void flush() {
    if (pending_.empty()) return;
    Expression e = derivative_;
    e.roots.clear();
    for (std::size_t i : pending_) e.roots.push_back(derivative_.roots[i]);
    const std::vector<Tensor> outputs = call(e, dtype_of(pending_.front()));
    for (std::size_t p = 0; p < pending_.size(); ++p) full_[pending_[p]] = outputs[p];
    pending_.clear();
    used_.clear();
  }

  // Calls `e`, whose inputs are the operands, with only the operands it uses.
  std::vector<Tensor> call(const Expression& e, DType dtype) {
    const Expression needed = compact(e);
    std::vector<Index> map(operands_.size(), -1);
    std::vector<Tensor> inputs;
    std::set<Index> used;
    for (Index root : needed.roots) used.merge(used_inputs(needed, root));
    for (Index index : used) {
      map[static_cast<std::size_t>(index)] = static_cast<Index>(inputs.size());
      inputs.push_back(operands_[static_cast<std::size_t>(index)]);
    }
    Expression renumbered;
    std::vector<Index> done(needed.nodes.size(), -1);
    for (Index root : needed.roots)
      renumbered.roots.push_back(copy_into(renumbered, needed, root, done, map));
    Attrs attrs{{"shape", shape_}, {"expr", to_string(compact(renumbered))}};
    if (dtype != DType::f32) attrs.set("dtype", std::string(hal::to_string(dtype)));
    return args_.builder.call("elementwise", inputs, std::move(attrs));
  }

  // The derivative needs more operands than a call takes: first d root / d input, then times the cotangent.
  Tensor by_parts(Index input) {
    const Expression one = parse_expression("1");
    Tensor sum;
    for (std::size_t r = 0; r < dys_.size(); ++r) {
      Expression single = forward_;
      single.roots = {forward_.roots[r]};
      const Expression partial = differentiate(single, {input});
      std::vector<Index> identity(static_cast<std::size_t>(partial.inputs));
      for (std::size_t i = 0; i < identity.size(); ++i) identity[i] = static_cast<Index>(i);
      const Expression factor = compose(partial, single.inputs, one, 0, identity, {});
      const Tensor term = mul(call(factor, DType::f32).front(), dys_[r]);
      sum = sum ? kernels::add(sum, term) : term;
    }
    return sum;
  }

  // Sums over the dimensions along which the input was repeated. By value: calls move the program's types.
  Tensor reduce(Tensor full, Shape to) const {
    if (to == shape_) return full;
    if (elements(to) == elements(shape_)) return reshape(full, to);
    if (elements(to) > 1) return reduce_sum(full, static_cast<std::int64_t>(to.size()));
    const Tensor sum = reduce_sum(full, 0);
    return to == sum.shape() ? sum : reshape(sum, to);
  }

  const GradientArgs& args_;
  Expression forward_, derivative_;
  Shape shape_;
  std::vector<Tensor> dys_, operands_, full_;
  std::vector<Index> wrt_;
  std::vector<std::size_t> pending_;
  std::set<Index> used_;
};

}  // namespace

std::vector<Tensor> gradient(const GradientArgs& args) { return Backward(args).run(); }

}  // namespace meshloom::kernels::elementwise_parts
