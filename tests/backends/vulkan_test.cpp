// What only Vulkan has: the validation layer and staging.
#ifdef MESHLOOM_HAS_VULKAN
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "backends/vulkan/backend.h"
#include "backends/vulkan/device/enumerate.h"
#include "backends/vulkan/device/instance.h"

namespace meshloom {
namespace {

// Opens the first device with environment variables set before its instance is made. Each case is a process
// of its own under ctest.
std::unique_ptr<hal::Device> open_with(const char* name, const char* value, std::string& why_none) {
  ::setenv(name, value, 1);
  const hal::BackendEntry backend = backends::vulkan::vulkan_backend();
  if (backend.enumerate(why_none).empty()) return nullptr;
  return backend.open(0);
}

// Memory that a desktop or another job holds is not there for tensors.
TEST(Vulkan, MemoryIsWhatTheDriverSaysIsFree) {
  using backends::vulkan::heap_memory;
  constexpr VkDeviceSize kGib = 1 << 30;
  VkPhysicalDeviceMemoryProperties memory{};
  memory.memoryHeapCount = 3;
  memory.memoryHeaps[0] = {64 * kGib, 0};  // the host's
  memory.memoryHeaps[1] = {24 * kGib, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
  memory.memoryHeaps[2] = {kGib / 4, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
  budget.heapBudget[0] = 60 * kGib;
  budget.heapBudget[1] = 19 * kGib;
  budget.heapBudget[2] = kGib / 4;
  EXPECT_EQ(heap_memory(memory, nullptr).free, std::int64_t{24} << 30);
  EXPECT_EQ(heap_memory(memory, &budget).free, std::int64_t{19} << 30);
  EXPECT_EQ(heap_memory(memory, &budget).bytes, std::int64_t{24} << 30);
  budget.heapBudget[1] = 30 * kGib;
  EXPECT_EQ(heap_memory(memory, &budget).free, std::int64_t{24} << 30) << "a budget above the heap's size";
  budget.heapBudget[1] = 0;
  EXPECT_EQ(heap_memory(memory, &budget).free, std::int64_t{24} << 30) << "a driver that does not know";
}

// A negative control: the layer must see a hazard, or its silence says nothing.
TEST(Vulkan, SynchronizationValidationSeesAPlantedHazard) {
  std::string why_none;
  const auto device = open_with("MESHLOOM_VULKAN_VALIDATION", "quiet", why_none);
  if (!device) GTEST_SKIP() << why_none;
  const std::int64_t before = backends::vulkan::validation_messages();
  EXPECT_EQ(before, 0);
  auto a = device->allocate(1024, "a"), b = device->allocate(1024, "b");
  const hal::Binding from{a.get(), 0, 1024, hal::Access::read}, to{b.get(), 0, 1024, hal::Access::write};
  auto good = device->record("good");
  good->fill(to, hal::word(1.0f), "fill");
  good->barrier();
  good->copy(from, to, "copy");
  good->finish();
  EXPECT_EQ(backends::vulkan::validation_messages(), before);
  auto list = device->record("hazard");
  list->fill(to, hal::word(1.0f), "fill");
  list->copy(from, to, "copy over it without a barrier");
  list->finish();
  EXPECT_GT(backends::vulkan::validation_messages(), before);
}

TEST(Vulkan, StagingMovesBytesOfAnySize) {
  std::string why_none;
  const auto device = open_with("MESHLOOM_VULKAN_STAGING", "1", why_none);
  if (!device) GTEST_SKIP() << why_none;
  const std::int64_t bytes = (std::int64_t{33} << 20) + 7;  // three pieces, the last odd
  std::vector<std::byte> data(static_cast<std::size_t>(bytes)), back(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  auto buffer = device->allocate(bytes, "buffer");
  device->write(*buffer, 0, data);
  device->read(*buffer, 0, back);
  EXPECT_EQ(data, back);
  std::vector<std::byte> middle(5);
  device->read(*buffer, (std::int64_t{16} << 20) - 3, middle);
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), data.begin() + (16 << 20) - 3));

  auto list = device->record("host");
  list->host_call([](std::span<const hal::HostRange> ranges) { ranges[1].data[0] = ranges[0].data[3]; },
                  std::vector<hal::Binding>{{buffer.get(), 0, 8, hal::Access::read},
                                            {buffer.get(), 256, 8, hal::Access::read_write}},
                  "byte 256 = byte 3");
  list->finish();
  device->submit(*list);
  device->read(*buffer, 256, std::span(middle).first(2));
  EXPECT_EQ(middle[0], data[3]);
  EXPECT_EQ(middle[1], data[257]);
}

TEST(Vulkan, ASubgroupThatTheDeviceDoesNotHaveIsRefused) {
  std::string why_none;
  const hal::BackendEntry backend = backends::vulkan::vulkan_backend();
  if (backend.enumerate(why_none).empty()) GTEST_SKIP() << why_none;
  const auto device = backend.open(0);
  hal::ExecutableSpec spec{"iota", {}, {8, 1, 1}, {hal::Access::write}, 1};
  spec.subgroup = 4096;
  try {
    device->load(spec);
    ADD_FAILURE() << "loaded it";
  } catch (const hal::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("subgroups have"));
  }
}

}  // namespace
}  // namespace meshloom
#endif
