#include "backends/vulkan/inspect/spirv_module.h"

#include <optional>

#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

constexpr std::uint32_t kMagic = 0x07230203, kOldest = 0x00010300;
constexpr std::size_t kHeaderWords = 5;
constexpr std::uint32_t kMostSets = 8, kMostBindings = 64;

enum Op : std::uint32_t {
  entry_point = 15,
  execution_mode = 16,
  capability = 17,
  constant = 43,
  constant_composite = 44,
  spec_constant = 50,
  spec_constant_composite = 51,
  variable = 59,
  decorate = 71,
  execution_mode_id = 331
};
constexpr std::uint32_t kCooperativeMatrixKhr = 6022, kCooperativeMatrixNv = 5357;
constexpr std::uint32_t kComputeModel = 5, kLocalSize = 17, kLocalSizeId = 38;
constexpr std::uint32_t kSpecId = 1, kBuiltIn = 11, kBinding = 33, kDescriptorSet = 34, kWorkgroupSize = 25;
constexpr std::uint32_t kUniform = 2, kStorageBuffer = 12;

class Reader {
 public:
  Reader(std::span<const std::uint32_t> words, const std::map<std::uint32_t, std::uint32_t>& constants,
         const std::string& where)
      : words_(words), constants_(constants), where_(where) {}

  SpirvModule run() {
    if (words_.size() < kHeaderWords || words_[0] != kMagic)
      fail("must be SPIR-V in the byte order of this machine",
           words_.empty() ? "an empty file" : "another first word");
    // Before, storage buffers were a kind of uniforms.
    if (words_[1] < kOldest)
      fail("must be SPIR-V 1.3 or newer", "1." + std::to_string(words_[1] >> 8 & 0xff));
    for (std::size_t at = kHeaderWords; at < words_.size();) {
      const std::size_t length = words_[at] >> 16;
      if (length == 0 || length > words_.size() - at)
        fail("every instruction must end within the module", "one at word " + std::to_string(at));
      instruction(words_[at] & 0xffff, words_.subspan(at + 1, length - 1));
      at += length;
    }
    if (!entry_id_) fail("must have a compute shader", "no entry point of that kind");
    module_.workgroup = workgroup();
    buffers();
    return module_;
  }

 private:
  using Operands = std::span<const std::uint32_t>;

  [[noreturn]] void fail(const std::string& rule, const std::string& found) const {
    throw hal::Error(where_, rule, found);
  }

  void instruction(std::uint32_t op, Operands operands) {
    const std::size_t count = operands.size();
    if (op == entry_point && count >= 3 && operands[0] == kComputeModel && !entry_id_) {
      entry_id_ = operands[1];
      module_.entry = text(operands.subspan(2));
    } else if (op == capability && count >= 1) {
      if (operands[0] == kCooperativeMatrixKhr || operands[0] == kCooperativeMatrixNv)
        module_.uses_cooperative_matrices = true;
    } else if (op == execution_mode && count >= 5 && operands[1] == kLocalSize && operands[0] == entry_id_) {
      literal_size_ = {operands[2], operands[3], operands[4]};
    } else if (op == execution_mode_id && count >= 5 && operands[1] == kLocalSizeId &&
               operands[0] == entry_id_) {
      size_ids_ = {operands[2], operands[3], operands[4]};
    } else if (op == decorate && count >= 3) {
      if (operands[1] == kSpecId) spec_ids_[operands[0]] = operands[2];
      if (operands[1] == kBinding) bindings_[operands[0]] = operands[2];
      if (operands[1] == kDescriptorSet) set_of_[operands[0]] = operands[2];
      if (operands[1] == kBuiltIn && operands[2] == kWorkgroupSize) size_value_ = operands[0];
    } else if ((op == constant || op == spec_constant) && count >= 3) {
      values_[operands[1]] = operands[2];
    } else if ((op == constant_composite || op == spec_constant_composite) && count == 5) {
      triples_[operands[1]] = {operands[2], operands[3], operands[4]};
    } else if (op == variable && count >= 3) {
      storage_[operands[1]] = operands[2];
    }
  }

  static std::string text(Operands operands) {
    std::string text;
    for (const std::uint32_t word : operands)
      for (int byte = 0; byte < 4; ++byte) {
        const char c = static_cast<char>(word >> (8 * byte) & 0xff);
        if (c == '\0') return text;
        text += c;
      }
    return text;
  }

  std::uint32_t value(std::uint32_t id) const {
    if (const auto spec = spec_ids_.find(id); spec != spec_ids_.end())
      if (const auto given = constants_.find(spec->second); given != constants_.end()) return given->second;
    const auto found = values_.find(id);
    if (found == values_.end())
      fail("the size of a workgroup must be of constants", "%" + std::to_string(id));
    return found->second;
  }

  // A decorated constant goes before an execution mode.
  std::array<std::uint32_t, 3> workgroup() const {
    std::optional<std::array<std::uint32_t, 3>> ids = size_ids_;
    if (size_value_) {
      const auto found = triples_.find(*size_value_);
      if (found == triples_.end())
        fail("the size of a workgroup must be of three constants", "%" + std::to_string(*size_value_));
      ids = found->second;
    }
    if (!ids && !literal_size_) fail("must say the size of its workgroups", "none");
    const std::array<std::uint32_t, 3> size =
        ids ? std::array{value((*ids)[0]), value((*ids)[1]), value((*ids)[2])} : *literal_size_;
    for (const std::uint32_t one : size)
      if (one == 0 || one > 1024)
        fail("a workgroup must have 1 to 1024 invocations in each dimension", std::to_string(one));
    return size;
  }

  void buffers() {
    for (const auto& [id, binding] : bindings_) {
      const auto storage = storage_.find(id);
      if (storage == storage_.end()) continue;  // a variable that was optimized away
      const auto found = set_of_.find(id);
      const std::uint32_t set = found == set_of_.end() ? 0 : found->second;
      if (set >= kMostSets || binding >= kMostBindings)
        fail("bindings must be in " + std::to_string(kMostSets) + " sets of " + std::to_string(kMostBindings),
             "set " + std::to_string(set) + ", binding " + std::to_string(binding));
      if (storage->second != kUniform && storage->second != kStorageBuffer)
        fail("every binding must be a buffer", "binding " + std::to_string(binding));
      // Several variables may see one buffer by different types.
      BufferKind& kind = module_.sets[set].try_emplace(binding, BufferKind::uniform).first->second;
      if (storage->second == kStorageBuffer) kind = BufferKind::storage;
    }
  }

  std::span<const std::uint32_t> words_;
  const std::map<std::uint32_t, std::uint32_t>& constants_;
  const std::string& where_;
  SpirvModule module_{};
  std::optional<std::uint32_t> entry_id_, size_value_;
  std::optional<std::array<std::uint32_t, 3>> literal_size_, size_ids_;
  std::map<std::uint32_t, std::uint32_t> spec_ids_, values_, storage_, bindings_, set_of_;
  std::map<std::uint32_t, std::array<std::uint32_t, 3>> triples_;
};

}  // namespace

SpirvModule read_spirv_module(std::span<const std::uint32_t> words,
                              const std::map<std::uint32_t, std::uint32_t>& constants,
                              const std::string& where) {
  return Reader(words, constants, where).run();
}

}  // namespace meshloom::backends::vulkan
