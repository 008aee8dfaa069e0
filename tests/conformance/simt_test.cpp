// What OpenCL and Vulkan promise beyond the HAL: the portable dialect, its checks, caches, large buffers.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "kernels/catalog.h"

namespace meshloom {
namespace {

using hal::Access;

hal::ExecutableSpec fill_pattern(std::uint32_t workgroup = 8) {
  return {"fill_pattern", {}, {workgroup, 1, 1}, {Access::read, Access::write}, 3};
}

std::vector<hal::Word> fill_constants(std::int64_t count, float scale, float offset) {
  return {hal::word(count), hal::word(scale), hal::word(offset)};
}

class Simt : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    for (const hal::Listing& listing : registry_.list()) {
      if (listing.backend != GetParam()) continue;
      if (listing.devices.empty()) GTEST_SKIP() << listing.why_none;
      device_ = registry_.open(GetParam() + ":0");
      return;
    }
    GTEST_SKIP() << GetParam() << " was not built";
  }

  std::unique_ptr<hal::Buffer> buffer(const std::vector<float>& values, const std::string& label) {
    auto made = device_->allocate(static_cast<std::int64_t>(values.size() * 4), label);
    device_->write(*made, 0, std::as_bytes(std::span(values)));
    return made;
  }
  std::vector<float> floats(const hal::Buffer& from, std::int64_t offset, std::size_t count) {
    std::vector<float> values(count);
    device_->read(from, offset, std::as_writable_bytes(std::span(values)));
    return values;
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
  std::unique_ptr<hal::Device> device_;
};

TEST_P(Simt, PortableKernelComputesWithOffsetsAndTails) {
  const std::int64_t align = device_->info().limits.offset_alignment;
  for (std::uint32_t workgroup : {1u, 8u, 64u}) {
    for (std::int64_t count : {1, 3, 4, 1021}) {
      std::vector<float> in(static_cast<std::size_t>(align / 4 + count));
      std::iota(in.begin(), in.end(), 1.0f);
      auto source = buffer(in, "source");
      auto result =
          buffer(std::vector<float>(static_cast<std::size_t>(2 * align / 4 + count + 8), -7.0f), "result");
      auto list = device_->record("fill");
      const auto groups = static_cast<std::uint32_t>((count + 4 * workgroup - 1) / (4 * workgroup));
      list->dispatch(device_->load(fill_pattern(workgroup)), {groups, 1, 1},
                     std::vector<hal::Binding>{{source.get(), align, count * 4, Access::read},
                                               {result.get(), 2 * align, count * 4, Access::write}},
                     fill_constants(count, 0.5f, 3.0f), "fill");
      list->finish();
      device_->submit(*list);
      const auto out = floats(*result, 0, static_cast<std::size_t>(2 * align / 4 + count + 8));
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.size()); ++i) {
        const std::int64_t k = i - 2 * align / 4;
        const float want =
            k < 0 || k >= count ? -7.0f : 0.5f * in[static_cast<std::size_t>(align / 4 + k)] + 3.0f;
        ASSERT_EQ(out[static_cast<std::size_t>(i)], want) << "workgroup " << workgroup << " element " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Simt, testing::Values("opencl", "vulkan"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace meshloom
