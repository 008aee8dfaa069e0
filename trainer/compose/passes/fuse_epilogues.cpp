#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/expression.h"
#include "kernels/matmul/matmul.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/fuse.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Program;
using kernels::TensorType;
using kernels::ValueId;

// Expression -> name of the activations that a matmul can end with.
std::map<std::string, std::string> activation_expressions(const kernels::Catalog& catalog) {
  Program scratch;
  kernels::Builder builder(catalog, scratch);
  const kernels::Tensor x = builder.input("x", {kernels::DType::f32, {1}}, kernels::Role::input);
  std::map<std::string, std::string> names;
  const auto add = [&](kernels::Tensor (*make)(kernels::Tensor), kernels::Activation activation) {
    make(x);
    names[scratch.calls.back().attrs.text("expr")] = std::string(kernels::to_string(activation));
  };
  add(kernels::relu, kernels::Activation::relu);
  add(kernels::silu, kernels::Activation::silu);
  add(kernels::gelu, kernels::Activation::gelu);
  add(kernels::gelu_tanh, kernels::Activation::gelu_tanh);
  return names;
}

// What adds a residual to its first result. A matmul has other epilogues, too.
constexpr std::array<std::string_view, 6> kAddResiduals{
    "matmul", "nf4_matmul", "block_quantized_matmul", "embedding_grad", "rms_norm_grad", "layer_norm_grad"};

// A call that adds a residual to its first result, and the reshapes of that, which a single elementwise call reads.
struct Chain {
  int producer = -1;
  std::vector<int> views;  // in program order
  ValueId result = kernels::kNoValue;
};

// The epilogue that replaces the elementwise call.
struct Epilogue {
  enum class Kind { bias, residual, activation } kind;
  Chain chain;
  ValueId operand = kernels::kNoValue;  // bias or residual
  std::string activation;
};

class EpilogueFuser {
 public:
  // With `late` the producer may also move down to its reader.
  EpilogueFuser(Program& program, const kernels::Catalog& catalog,
                const std::map<std::string, std::string>& activations, bool late)
      : program_(program),
        activations_(activations),
        late_(late),
        graph_(program),
        roots_(view_roots(program, catalog)),
        before_(program.calls.size()),
        dropped_(program.calls.size(), 0),
        place_(program.calls.size()),
        result_place_(program.calls.size()),
        seen_through_(program.values.size()) {
    std::iota(place_.begin(), place_.end(), 0);
    result_place_ = place_;
    for (std::size_t v = 0; v < roots_.size(); ++v)
      seen_through_[at(roots_[v])].push_back(static_cast<ValueId>(v));
  }

  // One pass over the calls; true when something was fused.
  bool run() {
    bool any = false;
    const auto calls = static_cast<int>(program_.calls.size());
    for (int i = 0; i < calls; ++i)
      if (program_.calls[at(i)].op == "elementwise")
        if (const std::optional<Epilogue> found = match(i)) any = apply(*found, i) || any;
    if (any) rebuild();
    return any;
  }

 private:
  std::optional<Chain> chain_to(ValueId value, int reader) const {
    Chain chain;
    chain.result = value;
    for (int next = reader;;) {
      const std::vector<int>& readers = graph_.readers_of(value);
      const int definition = graph_.definition_of(value);
      if (graph_.outlives_program(value) || readers.size() != 1 || readers[0] != next || definition < 0)
        return {};
      const Call& call = program_.calls[at(definition)];
      if (call.phase != program_.calls[at(reader)].phase) return {};
      if (std::find(kAddResiduals.begin(), kAddResiduals.end(), call.op) != kAddResiduals.end()) {
        if (value != call.outputs[0]) return {};
        chain.producer = definition;
        return chain;
      }
      if (call.op != "reshape") return {};
      chain.views.insert(chain.views.begin(), definition);
      next = definition;
      value = call.inputs[0];
    }
  }

  std::optional<Epilogue> match(int index) const {
    const Call& call = program_.calls[at(index)];
    if (call.outputs.size() != 1) return {};
    const TensorType& type = program_.value(call.outputs[0]).type;
    if (call.inputs.size() == 1) {
      const auto activation = activations_.find(call.attrs.text("expr"));
      if (activation == activations_.end() || program_.value(call.inputs[0]).type != type) return {};
      const std::optional<Chain> chain = chain_to(call.inputs[0], index);
      if (!chain || !takes_all(chain->producer) || decorated(chain->producer, false)) return {};
      return Epilogue{Epilogue::Kind::activation, *chain, kernels::kNoValue, activation->second};
    }
    if (call.inputs.size() != 2 || !is_sum(call)) return {};
    // Of two producers the later one adds the result of the other as its residual.
    std::optional<Epilogue> best;
    for (std::size_t k = 0; k < 2; ++k) {
      const ValueId value = call.inputs[k], other = call.inputs[1 - k];
      if (value == other || program_.value(value).type != type) continue;
      const std::optional<Chain> chain = chain_to(value, index);
      if (!chain || (best && best->chain.producer > chain->producer)) continue;
      const TensorType& other_type = program_.value(other).type;
      const Call& producer = program_.calls[at(chain->producer)];
      if (other_type == type && !producer.attrs.flag("residual"))
        best = Epilogue{Epilogue::Kind::residual, *chain, other, {}};
      else if (other_type.rank() == 1 && other_type.dtype == kernels::DType::f32 && type.rank() > 1 &&
               takes_all(chain->producer) && !decorated(chain->producer, true) &&
               other_type.dim(0) == program_.value(producer.outputs[0]).type.dim(-1) &&
               other_type.dim(0) == type.dim(-1))
        best = Epilogue{Epilogue::Kind::bias, *chain, other, {}};
    }
    return best;
  }

  // Whether the producer may have a bias and an activation.
  bool takes_all(int producer) const { return program_.calls[at(producer)].op == "matmul"; }

  // Whether the producer has an epilogue after which no other may come.
  bool decorated(int producer, bool counting_bias) const {
    const kernels::Attrs& attrs = program_.calls[at(producer)].attrs;
    return attrs.flag("residual") || (attrs.has("activation") && attrs.text("activation") != "none") ||
           (counting_bias && attrs.flag("bias"));
  }

  static bool is_sum(const Call& call) {
    const std::shared_ptr<const kernels::Expression> kept =
        kernels::parsed_expression(call.attrs.text("expr"));
    const kernels::Expression& e = *kept;
    if (e.roots.size() != 1) return false;
    const kernels::ExprNode& root = e.nodes[at(e.roots[0])];
    return root.op == kernels::ExprOp::add && e.nodes[at(root.a)].op == kernels::ExprOp::input &&
           e.nodes[at(root.b)].op == kernels::ExprOp::input && e.nodes.size() == 3;
  }

  // False when the producer would have to move but may not.
  bool apply(const Epilogue& epilogue, int index) {
    const Call consumer = program_.calls[at(index)];
    Call producer = program_.calls[at(epilogue.chain.producer)];
    const bool early =
        epilogue.operand == kernels::kNoValue || defined_at(epilogue.operand) < epilogue.chain.producer;
    if (early ? !may_come_early(consumer, epilogue.chain.producer, index)
              : !may_move(producer, epilogue.chain.producer, index))
      return false;
    std::vector<Call> prologue;
    switch (epilogue.kind) {
      case Epilogue::Kind::activation:
        producer.attrs.set("activation", epilogue.activation);
        break;
      case Epilogue::Kind::bias:
        producer.attrs.set("bias", true);
        producer.inputs.push_back(epilogue.operand);
        break;
      case Epilogue::Kind::residual:
        producer.attrs.set("residual", true);
        producer.inputs.push_back(shaped_like(producer.outputs[0], epilogue.operand, consumer, prologue));
        break;
    }
    // The call that defined the elementwise call's operand now defines its result.
    std::vector<Call> views;
    for (int view : epilogue.chain.views) views.push_back(program_.calls[at(view)]);
    (views.empty() ? producer : views.back()).outputs[0] = consumer.outputs[0];
    dropped_[at(index)] = 1;
    place_[at(index)] = place_[at(epilogue.chain.producer)] = early ? epilogue.chain.producer : index;
    if (early)
      result_place_[at(index)] = views.empty() ? epilogue.chain.producer : epilogue.chain.views.back();
    else
      result_place_[at(epilogue.chain.producer)] = index;
    if (early) {
      before_[at(epilogue.chain.producer)] = std::move(prologue);
      program_.calls[at(epilogue.chain.producer)] = std::move(producer);
      if (!views.empty()) program_.calls[at(epilogue.chain.views.back())] = std::move(views.back());
      return true;
    }
    dropped_[at(epilogue.chain.producer)] = 1;
    for (int view : epilogue.chain.views) dropped_[at(view)] = 1;
    prologue.push_back(std::move(producer));
    for (Call& view : views) prologue.push_back(std::move(view));
    before_[at(index)] = std::move(prologue);
    return true;
  }

  int defined_at(ValueId value) const {
    const int definition = graph_.definition_of(value);
    return definition < 0 ? definition : result_place_[at(definition)];
  }

  // Where the last call, other than `except`, reads the storage of `root`; -1 = none.
  int last_read(ValueId root, int except) const {
    int last = -1;
    for (ValueId view : seen_through_[at(root)])
      for (int reader : graph_.readers_of(view))
        if (reader != except) last = std::max(last, place_[at(reader)]);
    return last;
  }

  // Moving a producer down keeps its inputs alive longer and creates its outputs later. That is allowed only
  // when it takes no more memory, the inputs are not overwritten and no other output is read meanwhile.
  bool may_move(const Call& producer, int from, int until) const {
    if (!late_) return false;
    for (std::size_t o = 1; o < producer.outputs.size(); ++o) {
      if (graph_.outlives_program(producer.outputs[o])) return false;
      for (int reader : graph_.readers_of(producer.outputs[o]))
        if (place_[at(reader)] <= until) return false;
    }
    std::int64_t kept = 0;
    for (ValueId input : producer.inputs) {
      const ValueId root = roots_[at(input)];
      const int overwritten = graph_.overwritten[at(root)];
      if (overwritten >= 0 && place_[at(overwritten)] < until) return false;
      if (graph_.definition_of(root) >= 0 && last_read(root, from) < from)
        kept += program_.value(root).type.bytes();
    }
    return kept <= program_.value(producer.outputs[0]).type.bytes();
  }

  // When the result overwrites donated storage, the old contents must not be needed any more.
  bool may_come_early(const Call& consumer, int producer, int index) const {
    for (const kernels::Donation& donation : program_.donations)
      if (donation.output == consumer.outputs[0] && last_read(donation.input, index) > producer) return false;
    return true;
  }

  ValueId shaped_like(ValueId model, ValueId operand, const Call& consumer, std::vector<Call>& prologue) {
    const TensorType type = program_.value(model).type;
    if (program_.value(operand).type == type) return operand;
    Call reshape;
    reshape.op = "reshape";
    reshape.inputs = {operand};
    reshape.outputs = {static_cast<ValueId>(program_.values.size())};
    reshape.attrs.set("shape", type.shape);
    reshape.path = consumer.path;
    reshape.phase = consumer.phase;
    program_.values.push_back({type, "", kernels::Role::activation, {}, ""});
    prologue.push_back(std::move(reshape));
    return prologue.back().outputs[0];
  }

  void rebuild() {
    std::vector<Call> calls;
    calls.reserve(program_.calls.size());
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      for (Call& call : before_[i]) calls.push_back(std::move(call));
      if (!dropped_[i]) calls.push_back(std::move(program_.calls[i]));
    }
    program_.calls = std::move(calls);
  }

  Program& program_;
  const std::map<std::string, std::string>& activations_;
  bool late_;
  Graph graph_;
  std::vector<ValueId> roots_;
  std::vector<std::vector<Call>> before_;
  std::vector<char> dropped_;
  std::vector<int> place_;                          // by call: where its inputs are read now
  std::vector<int> result_place_;                   // by call: where its outputs are defined now
  std::vector<std::vector<ValueId>> seen_through_;  // by root: all values that share its storage
};

}  // namespace

Program fuse_epilogues(Program program, const kernels::Catalog& catalog) {
  if (!catalog.has("matmul") || !catalog.has("elementwise")) return program;
  const std::map<std::string, std::string> activations = activation_expressions(catalog);
  // Sums that need no move come first.
  while (EpilogueFuser(program, catalog, activations, false).run() ||
         EpilogueFuser(program, catalog, activations, true).run())
    program = simplify(std::move(program), catalog);
  return program;
}

}  // namespace meshloom::trainer
