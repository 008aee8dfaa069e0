#include "backends/vulkan/inspect/spirv_interface.h"

#include <glslang/SPIRV/spirv.hpp>
#include <optional>

#include "backends/vulkan/device/spirv_words.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

constexpr std::uint32_t kOldest = 0x00010300;
constexpr std::uint32_t kMaxSets = 8, kMaxBindings = 64;

// Newer than the headers that come with the compiler.
constexpr std::uint32_t kCapabilityCooperativeMatrixKhr = 6022;

class Reader {
 public:
  Reader(std::span<const std::uint32_t> words, const std::map<std::uint32_t, std::uint32_t>& constants,
         const std::string& where)
      : words_(words), constants_(constants), where_(where) {}

  SpirvInterface run() {
    if (words_.size() < kSpirvHeaderWords || words_[0] != spv::MagicNumber)
      fail("must be SPIR-V in the byte order of this machine",
           words_.empty() ? "an empty file" : "another first word");
    // Before, storage buffers were a kind of uniforms.
    if (words_[1] < kOldest)
      fail("must be SPIR-V 1.3 or newer", "1." + std::to_string(words_[1] >> 8 & 0xff));
    for_each_instruction(words_, where_,
                         [&](std::uint32_t op, Operands operands) { instruction(op, operands); });
    if (!entry_id_) fail("must have a compute shader", "no entry point of that kind");
    interface_.workgroup = workgroup();
    buffers();
    return interface_;
  }

 private:
  using Operands = std::span<const std::uint32_t>;

  [[noreturn]] void fail(const std::string& rule, const std::string& found) const {
    throw hal::Error(where_, rule, found);
  }

  void instruction(std::uint32_t op, Operands operands) {
    const std::size_t count = operands.size();
    if (op == spv::OpEntryPoint && count >= 3 && operands[0] == spv::ExecutionModelGLCompute && !entry_id_) {
      entry_id_ = operands[1];
      interface_.entry = text_of(operands.subspan(2));
    } else if (op == spv::OpCapability && count >= 1) {
      if (operands[0] == kCapabilityCooperativeMatrixKhr || operands[0] == spv::CapabilityCooperativeMatrixNV)
        interface_.uses_cooperative_matrices = true;
    } else if (op == spv::OpExecutionMode && count >= 5 && operands[1] == spv::ExecutionModeLocalSize &&
               operands[0] == entry_id_) {
      literal_size_ = {operands[2], operands[3], operands[4]};
    } else if (op == spv::OpExecutionModeId && count >= 5 && operands[1] == spv::ExecutionModeLocalSizeId &&
               operands[0] == entry_id_) {
      size_ids_ = {operands[2], operands[3], operands[4]};
    } else if (op == spv::OpDecorate && count >= 3) {
      if (operands[1] == spv::DecorationSpecId) spec_ids_[operands[0]] = operands[2];
      if (operands[1] == spv::DecorationBinding) bindings_[operands[0]] = operands[2];
      if (operands[1] == spv::DecorationDescriptorSet) set_of_[operands[0]] = operands[2];
      if (operands[1] == spv::DecorationBuiltIn && operands[2] == spv::BuiltInWorkgroupSize)
        size_value_ = operands[0];
    } else if ((op == spv::OpConstant || op == spv::OpSpecConstant) && count >= 3) {
      values_[operands[1]] = operands[2];
    } else if ((op == spv::OpConstantComposite || op == spv::OpSpecConstantComposite) && count == 5) {
      triples_[operands[1]] = {operands[2], operands[3], operands[4]};
    } else if (op == spv::OpVariable && count >= 3) {
      storage_[operands[1]] = operands[2];
    }
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
      if (set >= kMaxSets || binding >= kMaxBindings)
        fail("bindings must be in " + std::to_string(kMaxSets) + " sets of " + std::to_string(kMaxBindings),
             "set " + std::to_string(set) + ", binding " + std::to_string(binding));
      if (storage->second != spv::StorageClassUniform && storage->second != spv::StorageClassStorageBuffer)
        fail("every binding must be a buffer", "binding " + std::to_string(binding));
      // Several variables may see one buffer by different types.
      BufferKind& kind = interface_.sets[set].try_emplace(binding, BufferKind::uniform).first->second;
      if (storage->second == spv::StorageClassStorageBuffer) kind = BufferKind::storage;
    }
  }

  std::span<const std::uint32_t> words_;
  const std::map<std::uint32_t, std::uint32_t>& constants_;
  const std::string& where_;
  SpirvInterface interface_{};
  std::optional<std::uint32_t> entry_id_, size_value_;
  std::optional<std::array<std::uint32_t, 3>> literal_size_, size_ids_;
  std::map<std::uint32_t, std::uint32_t> spec_ids_, values_, storage_, bindings_, set_of_;
  std::map<std::uint32_t, std::array<std::uint32_t, 3>> triples_;
};

}  // namespace

SpirvInterface read_spirv_interface(std::span<const std::uint32_t> words,
                                    const std::map<std::uint32_t, std::uint32_t>& constants,
                                    const std::string& where) {
  return Reader(words, constants, where).run();
}

}  // namespace meshloom::backends::vulkan
