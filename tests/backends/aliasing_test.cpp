// Bindings of a dispatch that are the same memory, and how Vulkan's compilers learn of them: from the SPIR-V, of which no driver
// is asked here.
#ifdef MESHLOOM_HAS_VULKAN
#include "backends/simt/host/aliasing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/simt/dialect/loader.h"
#include "backends/vulkan/backend.h"
#include "backends/vulkan/device/shader.h"
#include "backends/vulkan/device/spirv_words.h"
#include "tests/message_of.h"

namespace meshloom {
namespace {

using backends::simt::alias_defines;
using backends::simt::aliased_bindings;
using backends::simt::declared_aliased;
using backends::simt::Language;
using hal::Access;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Memory : public hal::Buffer {
 public:
  Memory() : Buffer(4096, "memory") {}
};

TEST(Aliasing, BindingsThatShareBytesOfWhichOneIsWrittenAreFound) {
  Memory one, other;
  const hal::Binding a{&one, 0, 256, Access::read}, b{&one, 256, 256, Access::read};
  const auto written = [](hal::Binding binding, Access access = Access::write) {
    binding.access = access;
    return binding;
  };
  const auto found = [](std::vector<hal::Binding> bindings) { return aliased_bindings(bindings); };
  EXPECT_EQ(found({a, written(a)}), 0b11u);
  EXPECT_EQ(found({b, a, written(a, Access::read_write)}), 0b110u);
  EXPECT_EQ(found({a, a, written(a)}), 0b111u);
  EXPECT_EQ(found({a, b, written(b), written(a)}), 0b1111u);
  EXPECT_EQ(found({{&one, 128, 256, Access::read}, written(b)}), 0b11u);
  EXPECT_EQ(found({a, a, written(b)}), 0u) << "what is only read, and neighbours";
  EXPECT_EQ(found({a, {&other, 0, 256, Access::write}}), 0u) << "another buffer";
}

TEST(Aliasing, SpecsSayIt) {
  hal::ExecutableSpec spec{"fill_pattern", {}, {8, 1, 1}, {Access::read, Access::write}, 3};
  EXPECT_EQ(declared_aliased(spec), 0u);
  const std::string key = spec.key();
  spec.defines = alias_defines(0b11);
  EXPECT_EQ(declared_aliased(spec), 0b11u);
  EXPECT_NE(spec.key(), key);
  EXPECT_THAT(alias_defines(0), IsEmpty());
}

// A module's buffers, views of one binding apart.
struct View {
  std::uint32_t binding = 0;
  bool aliased = false, readonly = false;
};
struct Module {
  std::vector<View> views;
  std::set<std::uint32_t> readonly_blocks;  // of device addresses
  int pointers = 0, aliased_pointers = 0;   // variables that hold device addresses
};

Module module_of(const hal::ExecutableSpec& spec, Language language) {
  constexpr std::uint32_t kDecorate = 71, kMemberDecorate = 72, kTypePointer = 32, kVariable = 59;
  constexpr std::uint32_t kNonWritable = 24, kAliased = 20, kBinding = 33, kAliasedPointer = 5356;
  constexpr std::uint32_t kFunction = 7, kPhysicalStorageBuffer = 5349;
  const std::vector<std::uint32_t> words = backends::vulkan::compile_glsl(
      backends::simt::source_of(spec, language, {}), "a test", hal::DiskCache(""));
  std::set<std::uint32_t> aliased, readonly, aliased_pointers, addresses;
  std::map<std::uint32_t, std::uint32_t> bindings, pointees;
  Module module;
  backends::vulkan::for_each_instruction(words, "a test", [&](std::uint32_t opcode, auto operands) {
    if (opcode == kDecorate && operands[1] == kAliased) aliased.insert(operands[0]);
    if (opcode == kDecorate && operands[1] == kAliasedPointer) aliased_pointers.insert(operands[0]);
    if (opcode == kDecorate && operands[1] == kBinding) bindings[operands[0]] = operands[2];
    if (opcode == kMemberDecorate && operands[2] == kNonWritable) readonly.insert(operands[0]);
    if (opcode == kTypePointer) pointees[operands[0]] = operands[2];
    if (opcode == kTypePointer && operands[1] == kPhysicalStorageBuffer) {
      addresses.insert(operands[0]);
      if (readonly.count(operands[2])) module.readonly_blocks.insert(operands[2]);
    }
    if (opcode != kVariable) return;
    const std::uint32_t pointee = pointees[operands[0]];
    if (const auto binding = bindings.find(operands[1]); binding != bindings.end())
      module.views.push_back({binding->second, aliased.count(operands[1]) > 0, readonly.count(pointee) > 0});
    if (operands[2] == kFunction && addresses.count(pointee)) {
      ++module.pointers;
      module.aliased_pointers += aliased_pointers.count(operands[1]) > 0 ? 1 : 0;
    }
  });
  return module;
}

std::vector<View> of_binding(const Module& module, std::uint32_t binding) {
  std::vector<View> views;
  for (const View& view : module.views)
    if (view.binding == binding) views.push_back(view);
  return views;
}

// x0, x1 -> x0 + x1 and x1, over packs of four.
hal::ExecutableSpec chain(std::uint32_t aliased) {
  hal::ExecutableSpec spec{"elementwise", alias_defines(aliased), {32, 1, 1}, {}, 8};
  spec.bindings = {Access::read, Access::read, Access::write, Access::write};
  for (const char* name : {"A0", "A1"}) spec.defines.push_back({name, "R"});
  for (const char* name : {"A2", "A3"}) spec.defines.push_back({name, "W"});
  for (const char* name : {"T0", "T1", "T2", "T3", "NARROW"}) spec.defines.push_back({name, "0"});
  spec.defines.insert(spec.defines.end(), {{"OPERANDS", "4"},
                                           {"PACK", "4"},
                                           {"READS", "READ_full(0) READ_full(1) PLACE(2) PLACE(3)"},
                                           {"CHAIN", "S_read(0,0) S_read(1,1) S_add(2,0,1)"},
                                           {"RESULTS", "RESULT(2,2) RESULT(3,1)"},
                                           {"WRITES", "WRITE(2) WRITE(3)"}});
  return spec;
}

MATCHER(IsAliased, "is Aliased and may be written") { return arg.aliased && !arg.readonly; }
MATCHER(IsApart, "is not Aliased") { return !arg.aliased; }
MATCHER(IsReadonly, "is readonly") { return arg.readonly; }

TEST(Aliasing, DescriptorsOfTheSameMemoryAreAliased) {
  const Module apart = module_of(chain(0), Language::glsl);
  EXPECT_THAT(apart.views, AllOf(SizeIs(testing::Ge(4)), Each(IsApart())));
  EXPECT_THAT(of_binding(apart, 1), Each(IsReadonly()));

  const Module module = module_of(chain(0b0110), Language::glsl);
  for (const std::uint32_t binding : {1u, 2u})
    EXPECT_THAT(of_binding(module, binding), AllOf(SizeIs(testing::Ge(1)), Each(IsAliased()))) << binding;
  for (const std::uint32_t binding : {0u, 3u})
    EXPECT_THAT(of_binding(module, binding), AllOf(SizeIs(testing::Ge(1)), Each(IsApart()))) << binding;
  EXPECT_THAT(of_binding(module, 0), Each(IsReadonly()));

  const Module texels = module_of(chain(0b0110), Language::glsl_texels);
  for (const std::uint32_t binding : {1u, 2u})
    EXPECT_THAT(of_binding(texels, binding), AllOf(SizeIs(testing::Ge(1)), Each(IsAliased()))) << binding;
}

// By element and by four.
TEST(Aliasing, TheTwoViewsOfWhatIsReadAndWrittenAreAliased) {
  const hal::ExecutableSpec spec{"group_total", {}, {32, 1, 1}, {Access::read_write}, 2};
  EXPECT_THAT(of_binding(module_of(spec, Language::glsl), 0), AllOf(SizeIs(2), Each(IsAliased())));
}

TEST(Aliasing, PointersToDeviceMemoryAreAliased) {
  for (const std::uint32_t aliased : {0u, 0b0111u}) {
    const Module module = module_of(chain(aliased), Language::glsl_device_address);
    EXPECT_GE(module.pointers, 4);
    EXPECT_EQ(module.aliased_pointers, module.pointers);
    EXPECT_EQ(module.readonly_blocks.empty(), aliased != 0) << "what is written is not readonly";
  }
}

TEST(Aliasing, ADispatchThatDoesNotSaySoIsRefused) {
  const hal::BackendEntry backend = backends::vulkan::vulkan_backend();
  std::string why_none;
  if (backend.enumerate(why_none).empty()) GTEST_SKIP() << why_none;
  const auto device = backend.open(0);
  const auto memory = device->allocate(256, "memory");
  std::vector<float> values(64, 3.0f);
  device->write(*memory, 0, std::as_bytes(std::span(values)));
  hal::ExecutableSpec spec{"fill_pattern", {}, {8, 1, 1}, {Access::read, Access::write}, 3};
  const auto run = [&] {
    const auto list = device->record("in place");
    list->dispatch(device->load(spec), {2, 1, 1},
                   std::vector<hal::Binding>{{memory.get(), 0, 256, Access::read},
                                             {memory.get(), 0, 256, Access::write}},
                   std::vector<hal::Word>{hal::word(std::int64_t{64}), hal::word(2.0f), hal::word(1.0f)},
                   "the label");
    list->finish();
    device->submit(*list);
    device->wait();  // before the list is gone
  };
  EXPECT_THAT(tests::message_of(run),
              AllOf(HasSubstr("the label"), HasSubstr("fill_pattern"), HasSubstr("ALIASED_0")));
  spec.defines = alias_defines(0b11);
  run();
  device->read(*memory, 0, std::as_writable_bytes(std::span(values)));
  EXPECT_THAT(values, Each(7.0f));
}

}  // namespace
}  // namespace meshloom
#endif
