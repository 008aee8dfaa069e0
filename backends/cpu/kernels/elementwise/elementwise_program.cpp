#include "backends/cpu/kernels/elementwise/elementwise_program.h"

#include <algorithm>
#include <bit>
#include <map>

namespace meshloom::backends::cpu {
namespace {

using kernels::ExprNode;
using kernels::ExprOp;

constexpr std::size_t kMaxWords = 256;  // of a dispatch's constants
constexpr std::uint32_t kMaxSlots = 250;

Code code_of(ExprOp op) {
  switch (op) {
    case ExprOp::add:
      return Code::add;
    case ExprOp::sub:
      return Code::sub;
    case ExprOp::mul:
      return Code::mul;
    case ExprOp::div:
      return Code::div;
    case ExprOp::max:
      return Code::max;
    case ExprOp::min:
      return Code::min;
    case ExprOp::gt:
      return Code::gt;
    case ExprOp::neg:
      return Code::neg;
    case ExprOp::abs:
      return Code::abs;
    case ExprOp::exp:
      return Code::exp;
    case ExprOp::log:
      return Code::log;
    case ExprOp::sqrt:
      return Code::sqrt;
    case ExprOp::rsqrt:
      return Code::rsqrt;
    case ExprOp::tanh:
      return Code::tanh;
    case ExprOp::sigmoid:
      return Code::sigmoid;
    case ExprOp::erf:
      return Code::erf;
    case ExprOp::is_finite:
      return Code::is_finite;
    case ExprOp::select:
      return Code::select;
    case ExprOp::eq:
      return Code::eq;
    case ExprOp::floor:
      return Code::floor;
    case ExprOp::mod:
      return Code::mod;
    case ExprOp::input:
    case ExprOp::constant:
      break;
  }
  return Code::copy;
}

bool has_third(Code code) { return code == Code::select; }

// True for the nodes that a root depends on.
std::vector<char> needed_nodes(const kernels::Expression& expression) {
  std::vector<char> needed(expression.nodes.size(), 0);
  for (const std::int32_t root : expression.roots) needed[static_cast<std::size_t>(root)] = 1;
  for (std::size_t i = expression.nodes.size(); i-- > 0;) {
    if (!needed[i]) continue;
    const ExprNode& node = expression.nodes[i];
    for (const std::int32_t operand : {node.a, node.b, node.c})
      if (operand >= 0) needed[static_cast<std::size_t>(operand)] = 1;
  }
  return needed;
}

Extent extent_of(std::int64_t size, std::int64_t elements) {
  return size == elements ? Extent::full : size == 1 ? Extent::one : Extent::trailing;
}

// Turns an expression into a program: every node gets a slot. Inputs and constants have slots of their own, and other
// nodes share scratch slots, each free again after the last step that reads it.
class Compiler {
 public:
  Compiler(const kernels::Expression& expression, ElementwiseProgram& program)
      : expression_(expression),
        program_(program),
        needed_(needed_nodes(expression)),
        slot_(expression.nodes.size(), -1),
        uses_(expression.nodes.size(), 0) {}

  // Fills the program's constants, scratch and steps; its inputs and outputs must be there.
  void run() {
    place_constants();
    count_uses();
    first_scratch_ = static_cast<int>(program_.first_scratch());
    write_steps();
    if (!written_directly_) copy_outputs();
    program_.scratch = static_cast<std::uint32_t>(scratch_);
    for (const Step& step : steps_)
      program_.steps.push_back(
          {step.code, final_slot(step.dst), final_slot(step.a), final_slot(step.b), final_slot(step.c)});
  }

 private:
  // With slots that may be kOutput + an output's index: its slot until the number of scratch slots is known.
  struct Step {
    Code code;
    int dst, a, b, c;
  };
  static constexpr int kOutput = 1000;

  void place_constants() {
    for (std::size_t i = 0; i < expression_.nodes.size(); ++i) {
      const ExprNode& node = expression_.nodes[i];
      if (!needed_[i]) continue;
      if (node.op == ExprOp::input) slot_[i] = node.index;
      if (node.op != ExprOp::constant) continue;
      slot_[i] = static_cast<int>(program_.inputs() + program_.constants.size());
      program_.constants.push_back(static_cast<float>(node.value));
    }
  }

  void count_uses() {
    for (std::size_t i = 0; i < expression_.nodes.size(); ++i) {
      const ExprNode& node = expression_.nodes[i];
      if (!needed_[i]) continue;
      for (const std::int32_t operand : {node.a, node.b, node.c})
        if (operand >= 0) ++uses_[static_cast<std::size_t>(operand)];
    }
    for (const std::int32_t root : expression_.roots) ++uses_[static_cast<std::size_t>(root)];
  }

  // An output may share storage with an input, so it is written by the last step that reads an input, or later. With
  // one root that is the last step of all; other outputs go through a scratch slot and are copied at the end.
  void write_steps() {
    std::vector<std::size_t> computed;
    for (std::size_t i = 0; i < expression_.nodes.size(); ++i)
      if (needed_[i] && slot_[i] < 0) computed.push_back(i);
    written_directly_ = expression_.roots.size() == 1 && !computed.empty();
    for (const std::size_t i : computed) {
      const ExprNode& node = expression_.nodes[i];
      Step step{code_of(node.op), 0, slot_of(node.a), slot_of(node.b), slot_of(node.c)};
      for (const std::int32_t operand : {node.a, node.b, node.c}) release(operand);
      step.dst = written_directly_ && i == computed.back() ? kOutput : allocate();
      slot_[i] = step.dst;
      steps_.push_back(step);
    }
  }

  void copy_outputs() {
    std::vector<int> from;
    for (const std::int32_t root : expression_.roots) {
      int at = slot_of(root);
      if (at < static_cast<int>(program_.inputs()) && expression_.roots.size() > 1) {
        const int saved = allocate();  // an output may overwrite this input before it is copied
        steps_.push_back({Code::copy, saved, at, 0, 0});
        at = saved;
      }
      from.push_back(at);
    }
    for (std::size_t r = 0; r < from.size(); ++r)
      steps_.push_back({Code::copy, kOutput + static_cast<int>(r), from[r], 0, 0});
  }

  int slot_of(std::int32_t node) const { return node < 0 ? 0 : slot_[static_cast<std::size_t>(node)]; }

  int allocate() {
    if (free_.empty()) return first_scratch_ + scratch_++;
    const int taken = free_.back();
    free_.pop_back();
    return taken;
  }

  // One reader of the node is done.
  void release(std::int32_t node) {
    if (node < 0) return;
    const auto i = static_cast<std::size_t>(node);
    if (--uses_[i] == 0 && slot_[i] >= first_scratch_) free_.push_back(slot_[i]);
  }

  std::uint8_t final_slot(int at) const {
    return static_cast<std::uint8_t>(at >= kOutput ? static_cast<int>(program_.first_output()) + at - kOutput
                                                   : at);
  }

  const kernels::Expression& expression_;
  ElementwiseProgram& program_;
  std::vector<char> needed_;
  std::vector<int> slot_, uses_;  // by node; a slot of -1 is not assigned yet
  std::vector<Step> steps_;
  std::vector<int> free_;  // scratch slots
  int first_scratch_ = 0, scratch_ = 0;
  bool written_directly_ = false;  // the last step writes the only output
};

}  // namespace

std::int64_t ElementwiseProgram::block() const {
  constexpr std::int64_t kCacheFloats = 6144;  // 24 KiB
  return std::clamp<std::int64_t>(kCacheFloats / slots() / 64 * 64, 64, 1024);
}

std::optional<ElementwiseProgram> make_elementwise_program(const kernels::CallView& call,
                                                           std::string& reason) {
  const kernels::Expression expression = kernels::parse_expression(call.attrs.text("expr"));
  ElementwiseProgram program;
  program.elements = call.outputs.at(0).elements();
  program.result = call.outputs.at(0).dtype;
  program.outputs = static_cast<std::uint32_t>(expression.roots.size());
  for (const kernels::TensorType& type : call.inputs) {
    program.sizes.push_back(type.elements());
    program.dtypes.push_back(type.dtype);
    program.extents.push_back(extent_of(type.elements(), program.elements));
  }
  Compiler(expression, program).run();
  const auto exceeds = [&](std::size_t found, std::size_t limit, const char* what) {
    if (found <= limit) return false;
    reason = "the expression needs " + std::to_string(found) + " " + what + ", but the limit is " +
             std::to_string(limit);
    return true;
  };
  if (exceeds(program.slots(), kMaxSlots, "slots")) return std::nullopt;
  if (exceeds(encode(program).size(), kMaxWords, "constant words")) return std::nullopt;
  return program;
}

std::optional<ElementwiseProgram> make_elementwise_program(const std::string& expression, std::size_t inputs,
                                                           std::string& reason) {
  const std::vector<kernels::TensorType> whole(inputs, {hal::DType::f32, {64}}),
      result{{hal::DType::f32, {64}}};
  const kernels::Attrs attrs{{"expr", expression}};
  return make_elementwise_program({"elementwise", whole, result, attrs}, reason);
}

std::vector<hal::Word> expression_words(const std::string& expression, std::size_t inputs, std::size_t before,
                                        std::string& reason) {
  const auto program = make_elementwise_program(expression, inputs, reason);
  if (!program) return {};
  std::vector<hal::Word> words = encode(*program);
  if (words.size() + before > kMaxWords)
    reason = "the expression needs " + std::to_string(words.size() + before) +
             " constant words, but the limit is " + std::to_string(kMaxWords);
  return words;
}

ElementwiseSlots::ElementwiseSlots(const ElementwiseProgram& program) : program_(program) {
  for (std::uint32_t slot = 0; slot < program.slots(); ++slot) at_[slot] = own(slot);
  for (std::size_t i = 0; i < program.constants.size(); ++i)
    std::fill_n(own(program.first_constant() + static_cast<std::uint32_t>(i)), program.block(),
                program.constants[i]);
}

std::vector<hal::Word> encode(const ElementwiseProgram& program) {
  std::vector<hal::Word> words;
  const auto put = [&](std::uint64_t value) { words.push_back({.u = static_cast<std::uint32_t>(value)}); };
  const auto put64 = [&](std::int64_t value) {
    put(static_cast<std::uint64_t>(value));
    put(static_cast<std::uint64_t>(value) >> 32);
  };
  put64(program.elements);
  put(program.inputs() | program.outputs << 8 | program.scratch << 16 |
      static_cast<std::uint32_t>(program.result) << 24);
  put(program.constants.size());
  put(program.steps.size());
  for (std::size_t i = 0; i < program.sizes.size(); ++i) {
    put(static_cast<std::uint64_t>(program.extents[i]) | static_cast<std::uint64_t>(program.dtypes[i]) << 8);
    put64(program.sizes[i]);
  }
  for (const float value : program.constants) put(std::bit_cast<std::uint32_t>(value));
  for (const Step& step : program.steps) {
    put(static_cast<std::uint32_t>(step.code) | std::uint32_t{step.dst} << 8 | std::uint32_t{step.a} << 16 |
        std::uint32_t{step.b} << 24);
    if (has_third(step.code)) put(step.c);
  }
  return words;
}

ElementwiseProgram decode(const hal::Word* words) {
  ElementwiseProgram program;
  const auto get = [&] { return (words++)->u; };
  const auto get64 = [&] {
    const std::uint64_t low = get();
    return static_cast<std::int64_t>(low | std::uint64_t{get()} << 32);
  };
  program.elements = get64();
  const std::uint32_t counts = get();
  program.outputs = counts >> 8 & 0xff;
  program.scratch = counts >> 16 & 0xff;
  program.result = static_cast<hal::DType>(counts >> 24);
  const std::uint32_t constants = get(), steps = get();
  for (std::uint32_t i = 0; i < (counts & 0xff); ++i) {
    const std::uint32_t kind = get();
    program.extents.push_back(static_cast<Extent>(kind & 0xff));
    program.dtypes.push_back(static_cast<hal::DType>(kind >> 8));
    program.sizes.push_back(get64());
  }
  for (std::uint32_t i = 0; i < constants; ++i) program.constants.push_back(std::bit_cast<float>(get()));
  for (std::uint32_t i = 0; i < steps; ++i) {
    const std::uint32_t word = get();
    Step step{static_cast<Code>(word & 0xff), static_cast<std::uint8_t>(word >> 8),
              static_cast<std::uint8_t>(word >> 16), static_cast<std::uint8_t>(word >> 24), 0};
    if (has_third(step.code)) step.c = static_cast<std::uint8_t>(get());
    program.steps.push_back(step);
  }
  return program;
}

}  // namespace meshloom::backends::cpu
