#include "backends/vulkan/device/cooperative_spirv.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include "backends/vulkan/device/spirv_words.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

using Words = std::vector<std::uint32_t>;

// Of the SPIR-V registry.
enum Op : std::uint32_t {
  kExtension = 10,
  kCapability = 17,
  kTypeInt = 21,
  kTypeFloat = 22,
  kConstantTrue = 41,
  kConstantFalse = 42,
  kConstant = 43,
  kLoadPointer = 61,
  kStorePointer = 62,
  kFMul = 133,
  kFDiv = 136,
  kDecorate = 71,
  kControlBarrier = 224,
  kTypeMatrix = 4456,  // ...KHR
  kLoad = 4457,
  kStore = 4458,
  kMulAdd = 4459,
  kLength = 4460,
  kTypeMatrixNV = 5358,
  kLoadNV = 5359,
  kStoreNV = 5360,
  kMulAddNV = 5361,
  kLengthNV = 5362,
};
constexpr std::uint32_t kMatrixNV = 5357, kMatrixKHR = 6022, kBFloat16Type = 5116, kBFloat16Matrix = 5118;
constexpr std::uint32_t kAllSigned = 15;  // cooperative matrix operands: A, B, C and the result
constexpr std::uint32_t kSpecId = 1;
// Memory operands of an access, in the order of their operands, and semantics of a barrier.
constexpr std::uint32_t kAligned = 0x2, kMakeAvailable = 0x8, kMakeVisible = 0x10;
constexpr std::uint32_t kBarrierMakesAvailableAndVisible = 0x2000 | 0x4000;
constexpr std::uint32_t kM = 1, kN = 2, kK = 3, kKOfBFloat16 = 4;

void emit(Words& out, std::uint32_t op, std::span<const std::uint32_t> operands) {
  out.push_back(static_cast<std::uint32_t>(operands.size() + 1) << 16 | op);
  out.insert(out.end(), operands.begin(), operands.end());
}
void emit(Words& out, std::uint32_t op, std::initializer_list<std::uint32_t> operands) {
  emit(out, op, std::span(operands.begin(), operands.size()));
}

void emit_extension(Words& out, std::string_view name) {
  Words text(name.size() / 4 + 1, 0);
  std::memcpy(text.data(), name.data(), name.size());
  emit(out, kExtension, text);
}

class Rewriter {
 public:
  Rewriter(const Words& words, const std::string& where) : words_(words), where_(where), next_(words[3]) {
    for_each_instruction(words, where, [&](std::uint32_t op, auto args) {
      uses_ = uses_ || (op == kCapability && args[0] == kMatrixNV);
      if (op == kDecorate && args[1] == kSpecId) spec_[args[0]] = args[2];
      if (op == kConstantTrue || op == kConstantFalse) layout_[args[1]] = op == kConstantTrue;
      if (op == kTypeInt && args[1] == 32 && args[2] == 0) uint_ = args[0];
      if (op == kTypeInt && args[2] == 1) signed_.insert(args[0]);
      if (op == kTypeMatrixNV) bfloat16_ = bfloat16_ || holds_bfloat16(args);
      if (op == kControlBarrier) semantics_.insert({args[2], 0});
    });
  }

  Words run() {
    if (!uses_) return words_;
    out_.assign(words_.begin(), words_.begin() + kSpirvHeaderWords);
    for_each_instruction(words_, where_, [&](std::uint32_t op, auto args) { rewrite(op, args); });
    out_[3] = next_;
    return std::move(out_);
  }

 private:
  std::uint32_t spec(std::uint32_t id) const {
    const auto found = spec_.find(id);
    return found == spec_.end() ? 0 : found->second;
  }
  static bool is_k(std::uint32_t id) { return id == kK || id == kKOfBFloat16; }

  // type, component, scope, rows, columns -> 0 = A, 1 = B, 2 = accumulator
  std::uint32_t use(std::span<const std::uint32_t> type) const {
    const std::uint32_t rows = spec(type[3]), columns = spec(type[4]);
    if (rows == kM && is_k(columns)) return 0;
    if (is_k(rows) && columns == kN) return 1;
    if (rows == kM && columns == kN) return 2;
    throw hal::Error(where_, "a cooperative matrix is M x K, K x N or M x N",
                     "extents with SpecIds " + std::to_string(rows) + " and " + std::to_string(columns));
  }
  bool holds_bfloat16(std::span<const std::uint32_t> type) const {
    return spec(type[3]) == kKOfBFloat16 || spec(type[4]) == kKOfBFloat16;
  }

  std::uint32_t constant(std::uint32_t value) {
    std::uint32_t& id = constants_[value];
    if (id == 0) {
      id = next_++;
      emit(out_, kConstant, {uint_, id, value});
    }
    return id;
  }

  // Replaces the flag by the constant of the layout, which is declared with the first type.
  std::uint32_t layout_of(std::uint32_t flag) const {
    const auto found = layout_.find(flag);
    if (found == layout_.end()) throw hal::Error(where_, "the layout of a cooperative matrix is a constant");
    return constants_.at(found->second ? 1 : 0);
  }

  // Emits an access whose memory operands begin at `at`, without making it available or visible: barriers do that once, and
  // drivers would wait for each access before the next.
  void emit_access(std::uint32_t op, Words operands, std::size_t at) {
    if (at < operands.size()) {
      std::size_t scope = at + 1 + (operands[at] & kAligned ? 1 : 0);
      for (const std::uint32_t bit : {kMakeAvailable, kMakeVisible}) {
        if (!(operands[at] & bit)) continue;
        operands[at] &= ~bit;
        operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(scope));
      }
    }
    emit(out_, op, operands);
  }

  void rewrite(std::uint32_t op, std::span<const std::uint32_t> args) {
    const auto with_layout = [&](std::uint32_t as, std::size_t fixed) {
      // ..., stride, flag, [memory operands] -> ..., layout, stride, [memory operands]
      Words operands(args.begin(), args.end());
      operands[fixed] = layout_of(args[fixed + 1]);
      operands[fixed + 1] = args[fixed];
      emit_access(as, std::move(operands), fixed + 2);
    };
    switch (op) {
      case kCapability:
        if (args[0] != kMatrixNV) return emit(out_, op, args);
        emit(out_, op, {kMatrixKHR});
        if (!bfloat16_) return;
        emit(out_, op, {kBFloat16Type});
        return emit(out_, op, {kBFloat16Matrix});
      case kExtension:
        if (text_of(args) != "SPV_NV_cooperative_matrix") return emit(out_, op, args);
        emit_extension(out_, "SPV_KHR_cooperative_matrix");
        if (bfloat16_) emit_extension(out_, "SPV_KHR_bfloat16");
        return;
      case kTypeMatrixNV: {
        for (std::uint32_t value : {0u, 1u, 2u}) constant(value);
        matrices_.insert(args[0]);
        if (signed_.count(args[1])) signed_.insert(args[0]);
        std::uint32_t component = args[1];
        if (holds_bfloat16(args)) {
          if (bfloat16_type_ == 0) {
            bfloat16_type_ = next_++;
            emit(out_, kTypeFloat, {bfloat16_type_, 16, 0});
          }
          component = bfloat16_type_;
        }
        return emit(out_, kTypeMatrix, {args[0], component, args[2], args[3], args[4], constant(use(args))});
      }
      case kConstant:
        emit(out_, op, args);
        if (const auto found = semantics_.find(args[1]); found != semantics_.end()) {
          found->second = next_++;
          emit(out_, op, {args[0], found->second, args[2] | kBarrierMakesAvailableAndVisible});
        }
        return;
      case kControlBarrier:
        return emit(out_, op, {args[0], args[1], semantics_.at(args[2])});
      case kLoadPointer:
        return emit_access(op, {args.begin(), args.end()}, 3);
      case kStorePointer:
        return emit_access(op, {args.begin(), args.end()}, 2);
      case kLoadNV:
        return with_layout(kLoad, 3);
      case kStoreNV:
        return with_layout(kStore, 2);
      case kFDiv:
        return emit(out_, matrices_.count(args[0]) ? kFMul : kFDiv, args);
      case kMulAddNV: {
        Words operands(args.begin(), args.end());
        if (signed_.count(args[0])) operands.push_back(kAllSigned);
        return emit(out_, kMulAdd, operands);
      }
      case kLengthNV:
        return emit(out_, kLength, args);
      default:
        return emit(out_, op, args);
    }
  }

  const Words& words_;
  const std::string& where_;
  Words out_;
  std::uint32_t next_, uint_ = 0, bfloat16_type_ = 0;
  bool uses_ = false, bfloat16_ = false;
  std::map<std::uint32_t, std::uint32_t> spec_, constants_;  // id -> SpecId; value -> id
  std::map<std::uint32_t, std::uint32_t>
      semantics_;                         // id of a barrier's semantics -> of those that replace it
  std::set<std::uint32_t> matrices_;      // ids of their types
  std::set<std::uint32_t> signed_;        // ids of signed integers and of matrices of them
  std::map<std::uint32_t, bool> layout_;  // id of a flag -> column-major
};

}  // namespace

std::vector<std::uint32_t> to_khr_cooperative_matrix(const std::vector<std::uint32_t>& words,
                                                     const std::string& where) {
  if (words.size() < kSpirvHeaderWords) return words;
  return Rewriter(words, where).run();
}

}  // namespace meshloom::backends::vulkan
