// What OpenCL and Vulkan promise beyond the HAL: the portable dialect, its checks, caches, large buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#ifdef MESHLOOM_HAS_OPENCL
#include "backends/opencl/backend.h"
#endif
#ifdef MESHLOOM_HAS_VULKAN
#include "backends/vulkan/backend.h"
#endif
#include "backends/simt/own_profile.h"
#include "hal/cache/disk_cache.h"
#include "hal/registry.h"
#include "hal/submission.h"
#include "tests/message_of.h"

namespace meshloom {
namespace {

using hal::Access;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using tests::message_of;

hal::ExecutableSpec fill_pattern(std::uint32_t workgroup = 8) {
  return {"fill_pattern", {}, {workgroup, 1, 1}, {Access::read, Access::write}, 3};
}

std::vector<hal::Word> fill_constants(std::int64_t count, float scale, float offset) {
  return {hal::word(count), hal::word(scale), hal::word(offset)};
}

// Sets an environment variable for one scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_)
      ::setenv(name_, old_->c_str(), 1);
    else
      ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

class Simt : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    open();
    if (!device_) GTEST_SKIP() << why_;
  }

  void open() {
    device_.reset();
    hal::Registry registry;
#ifdef MESHLOOM_HAS_OPENCL
    registry.add(backends::opencl::opencl_backend());
#endif
#ifdef MESHLOOM_HAS_VULKAN
    registry.add(backends::vulkan::vulkan_backend());
#endif
    why_ = GetParam() + " was not built";
    for (const hal::BackendDevices& found : registry.enumerate())
      if (found.backend == GetParam()) {
        why_ = found.why_none;
        if (!found.devices.empty()) device_ = registry.open(GetParam() + ":0");
      }
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
  // result = 2 * source + 1 over 100 elements.
  std::vector<float> run_once() {
    std::vector<float> in(100);
    std::iota(in.begin(), in.end(), 0.0f);
    auto source = buffer(in, "source"), result = buffer(in, "result");
    auto list = device_->record("once");
    list->dispatch(device_->load(fill_pattern()), {4, 1, 1},
                   std::vector<hal::Binding>{{source.get(), 0, 400, Access::read},
                                             {result.get(), 0, 400, Access::write}},
                   fill_constants(100, 2.0f, 1.0f), "once");
    list->finish();
    device_->submit(*list);
    return floats(*result, 0, 100);
  }

  std::unique_ptr<hal::Device> device_;
  std::string why_;
};

TEST_P(Simt, PortableKernelComputesWithOffsetsAndTails) {
  const std::int64_t align = device_->info().limits.offset_alignment;
  for (std::uint32_t workgroup : {1u, 8u, 64u}) {
    if (static_cast<int>(workgroup) > device_->info().limits.max_workgroup) continue;
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

// Larger than lavapipe's maxStorageBufferRange of 128 MiB: kernels must not go through descriptors.
TEST_P(Simt, BuffersBeyondTheBindingLimitWorkAtBothEnds) {
  const std::int64_t bytes = std::int64_t{160} << 20, count = bytes / 4;
  const hal::Limits& limits = device_->info().limits;
  if (limits.max_allocation_bytes < bytes || limits.memory_bytes < 2 * bytes)
    GTEST_SKIP() << "too little memory";
  auto source = device_->allocate(bytes, "large source");
  auto result = device_->allocate(bytes, "large result");
  auto list = device_->record("large");
  list->fill({source.get(), 0, bytes, Access::write}, hal::word(2.5f), "fill");
  list->barrier();
  const auto group = static_cast<std::uint32_t>(std::min(256, limits.max_workgroup));
  list->predict(0.3);  // cut into several dispatches, which must be right without descriptors too
  list->dispatch(device_->load(fill_pattern(group)), {static_cast<std::uint32_t>(count / 4 / group), 1, 1},
                 std::vector<hal::Binding>{{source.get(), 0, bytes, Access::read},
                                           {result.get(), 0, bytes, Access::write}},
                 fill_constants(count, 2.0f, 1.0f), "large");
  list->finish();
  device_->submit(*list);
  for (std::int64_t at : {std::int64_t{0}, bytes / 2, bytes - 64})
    EXPECT_THAT(floats(*result, at, 16), testing::Each(6.0f)) << "at byte " << at;
}

TEST_P(Simt, AListSubmittedAgainSeesWhatTheOneBeforeWrote) {
  std::vector<float> in(64, 1.0f);
  auto a = buffer(in, "a"), b = buffer(in, "b");
  auto list = device_->record("twice");
  const auto executable = device_->load(fill_pattern());
  const hal::Binding from{a.get(), 0, 256, Access::read}, to{b.get(), 0, 256, Access::write};
  list->dispatch(executable, {2, 1, 1}, std::vector{from, to}, fill_constants(64, 2.0f, 0.0f), "a to b");
  list->barrier();
  list->copy({b.get(), 0, 256, Access::read}, {a.get(), 0, 256, Access::write}, "b to a");
  list->finish();
  for (int i = 0; i < 10; ++i) device_->submit(*list);
  EXPECT_THAT(floats(*a, 0, 64), testing::Each(1024.0f));
}

// Benchmarks run it on GPUs alone.
TEST_P(Simt, TheProbeOfBandwidthCopies) {
  constexpr std::int64_t kGroups = 3, kRounds = 2, kCount = kGroups * kRounds * 4 * 8;
  std::vector<float> in(kCount);
  std::iota(in.begin(), in.end(), 1.0f);
  auto a = buffer(in, "a"), b = buffer(std::vector<float>(kCount, 0.0f), "b");
  auto list = device_->record("copy");
  const hal::ExecutableSpec spec{"probe_copy", {}, {8, 1, 1}, {Access::read, Access::write}, 1};
  list->dispatch(device_->load(spec), {kGroups, 1, 1},
                 std::vector<hal::Binding>{{a.get(), 0, 4 * kCount, Access::read},
                                           {b.get(), 0, 4 * kCount, Access::write}},
                 std::vector{hal::word(kRounds)}, "copy");
  list->finish();
  device_->submit(*list);
  EXPECT_EQ(floats(*b, 0, kCount), in);
}

TEST_P(Simt, HostCallsRunBetweenTheirNeighbours) {
  auto a = buffer(std::vector<float>(64, 1.0f), "a"), b = buffer(std::vector<float>(64, 0.0f), "b");
  auto list = device_->record("host");
  const auto executable = device_->load(fill_pattern());
  const std::vector<hal::Binding> forth{{a.get(), 0, 256, Access::read}, {b.get(), 0, 256, Access::write}};
  const std::vector<hal::Binding> back{{b.get(), 0, 256, Access::read}, {a.get(), 0, 256, Access::write}};
  list->dispatch(executable, {2, 1, 1}, forth, fill_constants(64, 2.0f, 0.0f), "b = 2a");
  list->barrier();
  list->host_call(
      [](std::span<const hal::HostRange> ranges) {
        auto* values = reinterpret_cast<float*>(ranges[0].data);
        for (std::int64_t i = 0; i < ranges[0].bytes / 4; ++i) values[i] += 1.0f;
      },
      std::vector<hal::Binding>{{b.get(), 128, 128, Access::read_write}}, "b[32:] += 1");
  list->barrier();
  list->dispatch(executable, {2, 1, 1}, back, fill_constants(64, 10.0f, 0.0f), "a = 10b");
  list->finish();
  device_->submit(*list);
  device_->submit(*list);
  EXPECT_THAT(floats(*a, 0, 32), testing::Each(400.0f));
  EXPECT_THAT(floats(*a, 128, 32), testing::Each(610.0f));  // (2 * (10 * (2 * 1 + 1)) + 1) * 10
}

// The driver's own name for a workgroup, or a synchronization across workgroups, in a kernel's text; "" = none.
std::string name_that_cannot_be_cut(const std::string& text) {
  for (const char* name : {"get_group_id", "get_num_groups", "get_global_id", "get_global_size",
                           "gl_WorkGroupID", "gl_NumWorkGroups", "gl_GlobalInvocationID", "atomic"})
    if (text.find(name) != std::string::npos) return name;
  return "";
}

TEST(Dialect, KernelsKnowTheirWorkgroupsByItsNamesOnly) {
  EXPECT_EQ(name_that_cannot_be_cut("int i = GROUP_ID(0) * NUM_GROUPS(1) + GLOBAL_ID(2);"), "");
  EXPECT_NE(name_that_cannot_be_cut("int i = get_group_id(0);"), "");
  int kernels = 0;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(std::string(MESHLOOM_SOURCE_DIR) + "/backends")) {
    const std::string extension = file.path().extension();
    if (extension != ".simt" && extension != ".cl" && extension != ".comp" && extension != ".inc") continue;
    if (file.path().parent_path().filename() == "dialect") continue;
    std::ifstream in(file.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(name_that_cannot_be_cut(text), "") << file.path();
    ++kernels;
  }
  EXPECT_GT(kernels, 50);
}

// 1000 workgroups of a dispatch that is said to take two seconds, between two commands that depend on it.
TEST_P(Simt, DispatchesThatTakeLongAreCut) {
  constexpr std::int64_t kCount = 32000;
  for (const char* milliseconds : {"50", "0.001", "0"}) {
    SCOPED_TRACE(milliseconds);
    const Variable budget("MESHLOOM_SUBMISSION_MS", milliseconds);
    open();
    std::vector<float> in(kCount);
    std::iota(in.begin(), in.end(), 0.0f);
    auto a = buffer(in, "a"), b = buffer(std::vector<float>(kCount, -1.0f), "b");
    const hal::Binding from{a.get(), 0, 4 * kCount, Access::read}, to{b.get(), 0, 4 * kCount, Access::write};
    const hal::Binding back_from{b.get(), 0, 4 * kCount, Access::read},
        back_to{a.get(), 0, 4 * kCount, Access::write};
    auto list = device_->record("long");
    list->predict(2);
    list->dispatch(device_->load(fill_pattern()), {1000, 1, 1}, std::vector{from, to},
                   fill_constants(kCount, 2.0f, 1.0f), "b = 2a + 1");
    list->barrier();
    list->predict(1e-6);
    list->copy(back_from, back_to, "a = b");
    list->finish();
    // The second is cut as it was measured, and the third follows a list that has not been waited for.
    for (int i = 0; i < 4; ++i) {
      device_->submit(*list);
      if (i != 1) device_->wait();
    }
    for (float& value : in)
      for (int i = 0; i < 4; ++i) value = 2 * value + 1;
    EXPECT_EQ(floats(*a, 0, kCount), in);
    a.reset();
    b.reset();
  }
}

// Work that outlasts the limit counts as hung and is named. Then the device can only be destroyed, while it may still be at work,
// and opened again.
TEST_P(Simt, WorkThatDoesNotEndIsALostDevice) {
  constexpr std::int64_t kGroups = 1 << 14;
  const std::int64_t per_group = 8;
  const auto work = [&](hal::Buffer& y, std::int64_t rounds) {
    auto list = device_->record("endless");
    const hal::ExecutableSpec spec{"probe_multiply_add", {}, {8, 1, 1}, {Access::write}, 3};
    list->dispatch(device_->load(spec), {kGroups, 1, 1},
                   std::vector<hal::Binding>{{&y, 0, y.bytes(), Access::write}},
                   fill_constants(rounds, 0.5f, 1.0f), "long work");
    list->finish();
    return list;
  };
  const auto seconds_of = [&](hal::CommandList& list) {
    const auto begin = std::chrono::steady_clock::now();
    device_->submit(list);
    device_->wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  auto y = device_->allocate(kGroups * per_group * 4, "y");
  // A GPU takes a thousand rounds in less time than it takes to launch them.
  std::int64_t rounds = 1000;
  double seconds = 0;
  for (;; rounds *= 4) {
    seconds = std::min(seconds_of(*work(*y, rounds)), seconds_of(*work(*y, rounds)));
    if (seconds > 0.02 || rounds > (1 << 24)) break;
  }
  y.reset();
  const Variable limit("MESHLOOM_WAIT_SECONDS", "0.05");
  open();
  y = device_->allocate(kGroups * per_group * 4, "y");
  auto list =
      work(*y, static_cast<std::int64_t>(static_cast<double>(rounds) * std::clamp(4 / seconds, 1.0, 100.0)));
  try {
    device_->submit(*list);
    device_->wait();
    ADD_FAILURE() << "seconds of work were waited for";
  } catch (const hal::DeviceLost& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(GetParam() + ":0"), HasSubstr("of list 'endless'"), HasSubstr("'long work'"),
                      HasSubstr("MESHLOOM_WAIT_SECONDS"), Not(HasSubstr("\n"))));
  }
  EXPECT_THROW(device_->wait(), hal::DeviceLost);
  EXPECT_THROW(device_->submit(*list), hal::DeviceLost);
  std::vector<std::byte> some(4);
  EXPECT_THROW(device_->read(*y, 0, some), hal::DeviceLost);
  EXPECT_THROW(device_->write(*y, 0, some), hal::DeviceLost);
  list.reset();
  y.reset();
  device_.reset();
  const Variable usual("MESHLOOM_WAIT_SECONDS", "300");
  open();
  EXPECT_EQ(run_once().at(7), 15.0f);
}

TEST_P(Simt, KernelsAreLoadedTogether) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("together-" + GetParam());
  std::filesystem::remove_all(folder);
  const Variable cache("MESHLOOM_CACHE_DIR", folder.string());
  open();
  std::vector<hal::ExecutableSpec> specs;
  for (const std::uint32_t group : {1u, 2u, 4u, 8u, 16u, 32u, 8u}) specs.push_back(fill_pattern(group));
  std::size_t last = 0, all = 0;
  device_->load_all(specs, [&](std::size_t done, std::size_t of) {
    EXPECT_GE(done, last);
    last = done;
    all = of;
  });
  EXPECT_EQ(last, 6u);  // one is asked for twice
  EXPECT_EQ(all, 6u);
  EXPECT_EQ(run_once().at(7), 15.0f);
  // Everything is there already.
  device_->load_all(specs, [](std::size_t, std::size_t) { ADD_FAILURE() << "compiled again"; });
  // A kernel that does not compile is an error, and the others are there.
  specs = {fill_pattern(3), fill_pattern(5)};
  specs[0].defines = {{"affine", "1 +"}};
  EXPECT_THAT(message_of([&] { device_->load_all(specs); }),
              AllOf(HasSubstr("fill_pattern"), HasSubstr("must compile")));
  EXPECT_NE(device_->load(specs[1]), nullptr);
  std::filesystem::remove_all(folder);
}

TEST_P(Simt, KernelsThatDoNotExistOrCompileGiveOneClearLine) {
  EXPECT_THAT(message_of([&] {
                device_->load({"no_such_kernel", {}, {8, 1, 1}, {Access::read}, 0});
              }),
              HasSubstr("no_such_kernel"));
  hal::ExecutableSpec broken = fill_pattern();
  broken.defines = {{"affine", "1 +"}};
  EXPECT_THAT(
      message_of([&] { device_->load(broken); }),
      AllOf(HasSubstr("fill_pattern"), HasSubstr("affine"), HasSubstr("must compile"), Not(HasSubstr("\n"))));
  hal::ExecutableSpec huge = fill_pattern(1u << 20);
  EXPECT_THAT(message_of([&] { device_->load(huge); }),
              AllOf(HasSubstr("fill_pattern"), HasSubstr("1048576")));
}

// A negative control for the compile-time check of a kernel's bindings and constants.
TEST_P(Simt, ASpecThatDiffersFromTheKernelIsRefused) {
  hal::ExecutableSpec spec = fill_pattern();
  spec.bindings = {Access::read, Access::read_write};
  EXPECT_THAT(message_of([&] { device_->load(spec); }), HasSubstr("BINDINGS differ from the spec"));
  spec = fill_pattern();
  spec.constant_words = 2;
  EXPECT_THAT(message_of([&] { device_->load(spec); }), HasSubstr("CONSTANTS differ from the spec"));
}

TEST_P(Simt, BadDispatchesAreRefusedWhenRecorded) {
  auto a = buffer(std::vector<float>(64, 1.0f), "a"), b = buffer(std::vector<float>(64, 1.0f), "b");
  auto list = device_->record("bad");
  const auto executable = device_->load(fill_pattern());
  const hal::Binding from{a.get(), 0, 256, Access::read}, to{b.get(), 0, 256, Access::write};
  const auto constants = fill_constants(64, 1.0f, 0.0f);
  const auto dispatch = [&](std::array<std::uint32_t, 3> groups, std::vector<hal::Binding> bindings) {
    return message_of([&] { list->dispatch(executable, groups, bindings, constants, "the label"); });
  };
  EXPECT_THAT(dispatch({0, 1, 1}, {from, to}), AllOf(HasSubstr("the label"), HasSubstr("groups")));
  EXPECT_THAT(dispatch({1, 1, 0xffffffffu}, {from, to}), HasSubstr("groups"));
  EXPECT_THAT(dispatch({1, 1, 1}, {from}), HasSubstr("2 bindings"));
  EXPECT_THAT(dispatch({1, 1, 1}, {from, {b.get(), 4, 8, Access::write}}), HasSubstr("multiples of"));
  EXPECT_THAT(dispatch({1, 1, 1}, {from, {b.get(), 0, 512, Access::write}}),
              HasSubstr("inside its buffer 'b'"));
  EXPECT_EQ(dispatch({2, 1, 1}, {from, to}), "no error");
  EXPECT_THAT(message_of([&] { device_->submit(*list); }), HasSubstr("finish()"));
}

TEST_P(Simt, TheSameSpecGivesTheSameExecutable) {
  EXPECT_EQ(device_->load(fill_pattern()), device_->load(fill_pattern()));
  EXPECT_NE(device_->load(fill_pattern()), device_->load(fill_pattern(16)));
}

TEST_P(Simt, TheCacheSurvivesDamageAndAnUnwritableFolder) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("meshloom-cache-" + GetParam() + std::to_string(::getpid()));
  fs::remove_all(folder);
  {
    const Variable cache("MESHLOOM_CACHE_DIR", folder.string());
    open();
    const std::vector<float> fresh = run_once();
    EXPECT_EQ(fresh[7], 15.0f);
    ASSERT_FALSE(fs::is_empty(folder));
    open();
    EXPECT_EQ(run_once(), fresh);  // from the cache
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(entry.file_size() / 2));
      file.put('\x5a').put('\xa5');
    }
    open();
    EXPECT_EQ(run_once(), fresh);  // built again
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) fs::resize_file(entry.path(), 10);
    open();
    EXPECT_EQ(run_once(), fresh);
  }
  fs::remove_all(folder);
  const Variable nowhere("MESHLOOM_CACHE_DIR", "/proc/no/such/folder");
  open();
  EXPECT_EQ(run_once()[7], 15.0f);
  const Variable off("MESHLOOM_CACHE_DIR", "");
  open();
  EXPECT_EQ(run_once()[7], 15.0f);
}

TEST_P(Simt, TheDeviceDescribesItself) {
  const hal::DeviceInfo& info = device_->info();
  EXPECT_EQ(info.id, GetParam() + ":0");
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.driver.empty());
  EXPECT_FALSE(info.features.empty());
  EXPECT_GT(info.limits.memory_bytes, 0);
  EXPECT_GT(info.limits.max_allocation_bytes, 0);
  EXPECT_GE(info.limits.max_local_bytes, 16 << 10);
  EXPECT_EQ(info.profile.kind, info.is_cpu ? hal::ProfileKind::host : hal::ProfileKind::gpu);
  for (const auto& [dtype, flops] : info.profile.peak_flops) EXPECT_GT(flops, 0);
  for (const char* field : {"memory_bytes", "scratch_bytes", "max_workgroup", "lanes"})
    EXPECT_TRUE(info.profile.sources.contains(field)) << field;
}

INSTANTIATE_TEST_SUITE_P(Backends, Simt, testing::Values("opencl", "vulkan"),
                         [](const auto& info) { return info.param; });

TEST(OwnProfile, KnowsShippedGpusByTheNamesDriversGive) {
  using backends::simt::shipped_profile_of;
  const auto name_of = [](const char* device) {
    const hal::Profile* profile = shipped_profile_of(device);
    return profile ? profile->name : "";
  };
  EXPECT_EQ(name_of("NVIDIA H100 80GB HBM3"), "h100");
  EXPECT_EQ(name_of("NVIDIA GeForce RTX 4090"), "rtx4090");
  EXPECT_EQ(name_of("AMD Radeon RX 7900 XTX (RADV NAVI31)"), "rx7900xtx");
  EXPECT_EQ(name_of("Intel(R) Arc(TM) B580 Graphics (BMG G21)"), "arc-b580");
  EXPECT_EQ(name_of("NVIDIA A100-SXM4-80GB"), "a100");
  EXPECT_EQ(name_of("NVIDIA GeForce RTX 3060"), "rtx3060");
  EXPECT_EQ(name_of("AMD Radeon 8060S (RADV STRIX_HALO)"), "strix-halo");
  EXPECT_EQ(name_of("NVIDIA GeForce GTX 1080"), "");
  EXPECT_EQ(name_of("NVIDIA GeForce RTX 3060 Ti"), "");
  EXPECT_EQ(name_of("NVIDIA GeForce RTX 4090 Laptop GPU"), "");
  EXPECT_EQ(name_of("NVIDIA RTX A1000"), "");
  EXPECT_EQ(name_of("NVIDIA GH200 480GB"), "");
  EXPECT_EQ(name_of(""), "");
  EXPECT_EQ(name_of("AMD Radeon RX 7900 XT (RADV NAVI31)"), "");

  hal::DeviceInfo info;
  info.name = "NVIDIA GeForce GTX 1080";
  info.limits.memory_bytes = std::int64_t{8} << 30;
  const hal::Profile plain =
      backends::simt::own_profile(info, {20, 32, 256, 1.7e9, "driver", "driver", "guess"});
  EXPECT_EQ(plain.name, "nvidia-geforce-gtx-1080");
  EXPECT_EQ(plain.flops(hal::DType::f32), 20 * 256 * 1.7e9);
  EXPECT_THAT(plain.sources.at("peak_flops.f32"), HasSubstr("estimate"));
  info.name = "NVIDIA H100 PCIe";
  const hal::Profile known =
      backends::simt::own_profile(info, {114, 32, 256, 1.7e9, "driver", "driver", "guess"});
  EXPECT_EQ(known.memory_bytes, std::int64_t{8} << 30);
  EXPECT_EQ(known.cores, 114);
  EXPECT_EQ(known.flops(hal::DType::f32), hal::find_profile("h100").flops(hal::DType::f32));
  EXPECT_THAT(known.sources.at("peak_flops.f32"), HasSubstr("matched by name"));
}

TEST(DiskCache, KeepsEntriesApartAndRefusesDamage) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("meshloom-disk-cache-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  const hal::DiskCache cache(folder);
  const std::vector<std::byte> data(1000, std::byte{7});
  EXPECT_FALSE(cache.load("bin", "key"));
  cache.store("bin", "key", data);
  EXPECT_EQ(cache.load("bin", "key"), data);
  EXPECT_FALSE(cache.load("bin", "other key"));
  EXPECT_FALSE(cache.load("other", "key"));
  int files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    ++files;
    std::fstream(entry.path(), std::ios::binary | std::ios::in | std::ios::out).seekp(500).put('\x55');
  }
  EXPECT_EQ(files, 1);  // no temporary left behind
  EXPECT_FALSE(cache.load("bin", "key"));
  fs::remove_all(folder);
}

// NVIDIA's compiler of OpenCL C 1.2 refuses them, and PoCL's does not.
TEST(Dialect, HasNoVariadicMacros) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MESHLOOM_SOURCE_DIR "/backends")) {
    const std::string extension = entry.path().extension();
    if (extension != ".cl" && extension != ".simt" && extension != ".inc") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(text, AllOf(Not(HasSubstr("__VA_ARGS__")), Not(HasSubstr("...)")))) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 50);
}

}  // namespace
}  // namespace meshloom
