// The CPU backend beyond what every device promises: its threads, its errors, and the same bits on any number
// of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/backend.h"
#include "backends/cpu/device/command_list.h"
#include "backends/cpu/device/device.h"
#include "backends/cpu/device/host.h"
#include "backends/cpu/device/thread_pool.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"

namespace meshloom::backends::cpu {
namespace {

using testing::HasSubstr;

#if defined(__x86_64__) || defined(__aarch64__)
TEST(ThreadPoolTest, SubnormalNumbersAreZeroInTasksOnly) {
  volatile float tiny = 1e-40f, one = 1.0f;
  for (const int workers : {1, 3}) {
    ThreadPool pool(workers);
    std::atomic<int> zeros = 0;
    pool.run(100, [&](std::uint32_t begin, std::uint32_t end, int) {
      for (std::uint32_t i = begin; i < end; ++i) zeros += tiny * one == 0.0f ? 1 : 0;
    });
    EXPECT_EQ(zeros.load(), 100);
    EXPECT_GT(tiny * one, 0.0f);
  }
}
#endif

TEST(CpuRates, AreThoseGivenOrMeasured) {
  const char* before = std::getenv("MESHLOOM_CPU_RATES");
  const std::string kept = before ? before : "";
  ::setenv("MESHLOOM_CPU_RATES", "3e9 7e9", 1);
  const hal::Profile given = cpu_info().profile;
  EXPECT_DOUBLE_EQ(given.peak_flops.at(hal::DType::f32), 3e9 * std::min(given.cores, probe_host().threads));
  EXPECT_DOUBLE_EQ(given.memory_bytes_per_second, 7e9);
  EXPECT_THAT(given.sources.at("peak_flops.f32"), HasSubstr("MESHLOOM_CPU_RATES"));
  for (const char* bad : {"3e9", "3e9 0", "-1 7e9", "nan 7e9", "3e9 7e9 1", "3e9,7e9"}) {
    ::setenv("MESHLOOM_CPU_RATES", bad, 1);
    EXPECT_THAT([] { (void)cpu_info(); }, testing::ThrowsMessage<hal::Error>(testing::AllOf(
                                              HasSubstr("two positive numbers"), HasSubstr(bad))));
  }
  ::unsetenv("MESHLOOM_CPU_RATES");
  const hal::Profile measured = cpu_info().profile;
  EXPECT_GT(measured.peak_flops.at(hal::DType::f32), 1e8);
  EXPECT_GT(measured.memory_bytes_per_second, 1e8);
  EXPECT_THAT(measured.sources.at("peak_flops.f32"), HasSubstr("measured"));
  if (before) ::setenv("MESHLOOM_CPU_RATES", kept.c_str(), 1);
}

TEST(ThreadPoolTest, RunsEveryItemOnce) {
  for (const int workers : {1, 2, 7}) {
    ThreadPool pool(workers);
    for (const std::uint32_t items : {0u, 1u, 2u, 13u, 100u, 5000u}) {
      std::vector<std::atomic<int>> seen(items);
      std::vector<std::atomic<int>> inside(static_cast<std::size_t>(workers));
      for (int round = 0; round < 50; ++round)
        pool.run(
            items,
            [&](std::uint32_t begin, std::uint32_t end, int worker) {
              ASSERT_GE(worker, 0);
              ASSERT_LT(worker, workers);
              EXPECT_EQ(inside[static_cast<std::size_t>(worker)]++, 0)
                  << "two calls with one worker id at once";
              for (std::uint32_t i = begin; i < end; ++i) ++seen[i];
              --inside[static_cast<std::size_t>(worker)];
            },
            round % 2 == 0 ? Schedule::guided : Schedule::even);
      for (const auto& count : seen) ASSERT_EQ(count.load(), 50);
    }
  }
}

TEST(ThreadPoolTest, AnEvenScheduleHasARunPerWorker) {
  for (const int workers : {2, 3, 7}) {
    ThreadPool pool(workers);
    for (const std::uint32_t items : {2u, 13u, 100u}) {
      std::mutex mutex;
      std::map<std::uint32_t, std::uint32_t> runs;
      pool.run(
          items,
          [&](std::uint32_t begin, std::uint32_t end, int) {
            const std::lock_guard lock(mutex);
            runs[begin] = end;
          },
          Schedule::even);
      const std::uint32_t length = (items - 1) / static_cast<std::uint32_t>(workers) + 1;
      std::map<std::uint32_t, std::uint32_t> want;
      for (std::uint32_t begin = 0; begin < items; begin += length)
        want[begin] = std::min(begin + length, items);
      EXPECT_EQ(runs, want) << items << " items, " << workers << " workers";
    }
  }
}

TEST(ThreadPoolTest, PassesExceptionsOnAndGoesOn) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.run(50, [](std::uint32_t begin, std::uint32_t, int) { throw static_cast<int>(begin); }),
                 int);
    std::atomic<int> count = 0;
    pool.run(50,
             [&](std::uint32_t begin, std::uint32_t end, int) { count += static_cast<int>(end - begin); });
    EXPECT_EQ(count, 50);
  }
}

// The system may refuse a thread (ulimit -u, a control group's pids.max): the program ended without a word.
TEST(ThreadPoolTest, AThreadThatCannotBeStartedIsAnError) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  // Room for no more stacks: 8 MiB of addresses each.
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  rlimit small = before;
  small.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (64 << 20);
  std::string said = "no error";
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &small), 0);
  try {
    ThreadPool pool(500);
  } catch (const Error& error) {
    said = error.what();
  }
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_THAT(said, HasSubstr("must start 500 threads; MESHLOOM_THREADS="));
  EXPECT_THAT(said, HasSubstr("; found "));
  ThreadPool pool(3);
  std::atomic<int> count = 0;
  pool.run(50, [&](std::uint32_t begin, std::uint32_t end, int) { count += static_cast<int>(end - begin); });
  EXPECT_EQ(count, 50);
}

TEST(CpuHostTest, MoreThreadsThanCoresMeasureInNoTime) {
  const auto begin = std::chrono::steady_clock::now();
  ThreadPool pool(64);
  EXPECT_GT(measure_flops(pool, 2), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(CpuHostTest, TheVariableSetsTheNumberOfThreads) {
  Host host = probe_host();
  EXPECT_GE(host.threads, 1);
  EXPECT_GT(host.memory_bytes, 1 << 20);
  EXPECT_GE(host.lanes, 1);
  host.threads = 5;
  ::setenv("MESHLOOM_THREADS", "20", 1);
  EXPECT_EQ(wanted_workers(host), 20);
  ::setenv("MESHLOOM_THREADS", "3", 1);
  EXPECT_EQ(wanted_workers(host), 3);
  host.threads = 9;
  for (const auto& [share, workers] : {std::pair{"1/2", 4}, {"1/9", 1}, {"1/20", 1}, {"1/1", 9}}) {
    ::setenv("MESHLOOM_THREADS", share, 1);
    EXPECT_EQ(wanted_workers(host), workers) << share;
  }
  host.threads = 5;
  for (const char* wrong : {"1/0", "1/", "1/-2", "1/2x", "2/3", "0", "-1", "two", "3x", "99999", "1024"}) {
    ::setenv("MESHLOOM_THREADS", wrong, 1);
    try {
      wanted_workers(host);
      ADD_FAILURE() << "took " << wrong;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("MESHLOOM_THREADS"));
      EXPECT_THAT(error.what(), HasSubstr(wrong));
    }
  }
  ::unsetenv("MESHLOOM_THREADS");
  EXPECT_EQ(wanted_workers(host), host.threads);
}

TEST(CpuDeviceTest, ErrorsCarryTheLabel) {
  CpuDevice device(2);
  const auto buffer = device.allocate(64, "small");
  const auto list = device.record("list");
  list->host_call([](std::span<const hal::HostRange>) { throw std::runtime_error("broken"); }, {},
                  "layer3/thing");
  list->finish();
  try {
    device.submit(*list);
    ADD_FAILURE() << "the failure was lost";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer3/thing"));
    EXPECT_THAT(error.what(), HasSubstr("broken"));
  }
  const auto wrong = device.record("wrong");
  EXPECT_THROW(wrong->fill({buffer.get(), 32, 64, hal::Access::write}, hal::word(0.0f), "over the end"),
               Error);
  EXPECT_THROW(device.submit(*wrong), Error) << "not finished";
  wrong->finish();
  EXPECT_THROW(wrong->barrier(), Error);
}

// Adds 1 to the word of each item.
void count_items(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  for (std::uint32_t i = begin; i < end; ++i) ++args.at<std::int32_t>(0)[i];
}
// 1 for each item that finds the words of binding 0 to be all 1.
void find_ones(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const std::span words(args.at<std::int32_t>(0), static_cast<std::size_t>(args.bytes[0] / 4));
  const bool ones = std::all_of(words.begin(), words.end(), [](std::int32_t word) { return word == 1; });
  std::fill(args.at<std::int32_t>(1) + begin, args.at<std::int32_t>(1) + end, ones ? 1 : 0);
}
std::atomic<bool> second_has_begun;
// The last item waits until `announce` runs.
void wait_for_second(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  if (end == args.groups[0])
    while (!second_has_begun) {
      if (std::chrono::steady_clock::now() > late) return;
      std::this_thread::yield();
    }
  count_items(args, begin, end, 0);
}
void announce(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  second_has_begun = true;
  count_items(args, begin, end, 0);
}
void fail(const KernelArgs&, std::uint32_t, std::uint32_t, int) { throw std::runtime_error("broken"); }

// A list of dispatches over ranges of one buffer of words.
class DispatchSteps : public testing::Test {
 protected:
  hal::Binding words(std::int64_t first, std::int64_t count) {
    return {buffer_.get(), first * 4, count * 4, hal::Access::read_write};
  }
  void dispatch(hal::CommandList& list, KernelFunction function, std::uint32_t items,
                const std::vector<hal::Binding>& bindings, const std::string& label = "count") {
    hal::ExecutableSpec spec;
    spec.kernel = label;
    spec.bindings.assign(bindings.size(), hal::Access::read_write);
    list.dispatch(std::make_shared<CpuExecutable>(spec, function), {items, 1, 1}, bindings, {}, label);
  }

  CpuDevice device_{2};
  static constexpr std::int64_t kWords = 4096;
  std::unique_ptr<hal::Buffer> buffer_ = device_.allocate(kWords * 4, "words");
};

TEST_F(DispatchSteps, RunEveryItemOnce) {
  const auto list = device_.record("list");
  list->fill(words(0, kWords), {.i = 0}, "clear");
  const std::vector<std::uint32_t> items{64, 1, 639, 2, 320};
  for (std::size_t i = 0; i < items.size(); ++i)
    dispatch(*list, count_items, items[i], {words(static_cast<std::int64_t>(i) * 640, 640)});
  list->finish();
  device_.submit(*list);
  std::vector<std::int32_t> found(kWords);
  device_.read(*buffer_, 0, std::as_writable_bytes(std::span(found)));
  std::vector<std::int32_t> want(kWords);
  for (std::size_t i = 0; i < items.size(); ++i)
    std::fill_n(want.begin() + static_cast<std::ptrdiff_t>(i) * 640, items[i], 1);
  EXPECT_EQ(found, want);
}

TEST_F(DispatchSteps, RunAtOnceBetweenBarriers) {
  second_has_begun = false;
  const auto list = device_.record("list");
  list->fill(words(0, kWords), {.i = 0}, "clear");
  dispatch(*list, wait_for_second, 2, {words(0, 64)});
  dispatch(*list, announce, 2, {words(64, 64)});
  list->finish();
  device_.submit(*list);
  EXPECT_TRUE(second_has_begun);
  std::vector<std::int32_t> found(66);
  device_.read(*buffer_, 0, std::as_writable_bytes(std::span(found)));
  EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), 4) << "the first gave up waiting for the second";
}

TEST_F(DispatchSteps, WaitAtBarriers) {
  const auto list = device_.record("list");
  list->fill(words(0, kWords), {.i = 0}, "clear");
  dispatch(*list, count_items, 1024, {words(0, 1024)});
  dispatch(*list, count_items, 1024, {words(1024, 1024)});
  list->barrier();
  dispatch(*list, find_ones, 16, {words(0, 2048), words(2048, 64)});
  list->finish();
  device_.submit(*list);
  std::vector<std::int32_t> found(16);
  device_.read(*buffer_, 2048 * 4, std::as_writable_bytes(std::span(found)));
  EXPECT_EQ(found, std::vector<std::int32_t>(16, 1));
}

TEST_F(DispatchSteps, NameTheOneThatFails) {
  const auto list = device_.record("list");
  dispatch(*list, count_items, 8, {words(0, 64)}, "first");
  dispatch(*list, fail, 8, {words(64, 64)}, "second");
  list->finish();
  try {
    device_.submit(*list);
    ADD_FAILURE() << "the failure was lost";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'second'"));
    EXPECT_THAT(error.what(), HasSubstr("broken"));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("first")));
  }
}

// One call of a variant: the bytes of its outputs, none when it does not fit.
std::vector<std::byte> run(CpuDevice& device, const kernels::Variant& variant,
                           const kernels::Case& test_case) {
  const kernels::Contract& contract = *variant.contract;
  const std::vector<kernels::TensorType> outputs = contract.infer(test_case.inputs, test_case.attrs);
  const kernels::CallView call{contract.name, test_case.inputs, outputs, test_case.attrs};
  const kernels::Fit fit = variant.answer(call, device.info());
  if (!fit.ok) return {};
  std::vector<std::unique_ptr<hal::Buffer>> buffers;
  const auto bind = [&](std::int64_t bytes, hal::Access access) {
    buffers.push_back(device.allocate(bytes, "test"));
    return hal::Binding{buffers.back().get(), 0, bytes, access};
  };
  std::vector<hal::Binding> in, out;
  for (const kernels::HostTensor& tensor : kernels::make_inputs(contract, call, 11)) {
    in.push_back(bind(tensor.type.bytes(), hal::Access::read));
    device.write(*in.back().buffer, 0, tensor.data);
  }
  for (const kernels::TensorType& type : outputs) out.push_back(bind(type.bytes(), hal::Access::write));
  hal::Binding workspace;
  if (fit.workspace_bytes > 0) workspace = bind(fit.workspace_bytes, hal::Access::read_write);
  const kernels::Choice choice{&variant, fit.params, fit.workspace_bytes, 0};
  const auto list = device.record("test");
  const std::string label = contract.name + "/" + variant.name + "/" + test_case.name;
  variant.record({call, choice, device, *list, in, out, workspace, label});
  list->finish();
  device.submit(*list);
  std::vector<std::byte> bytes;
  for (const hal::Binding& binding : out) {
    const std::size_t at = bytes.size();
    bytes.resize(at + static_cast<std::size_t>(binding.bytes));
    device.read(*binding.buffer, 0, std::span(bytes).subspan(at));
  }
  return bytes;
}

TEST(CpuDeviceTest, TheSameBitsOnAnyNumberOfThreads) {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  add_cpu_variants(catalog);
  CpuDevice one(1), three(3);
  int compared = 0;
  for (const kernels::Contract* contract : catalog.contracts())
    for (const kernels::Variant* variant : catalog.variants(contract->name, "cpu")) {
      if (variant->name == "reference") continue;
      for (const kernels::Case& test_case : contract->cases()) {
        if (test_case.slow) continue;
        const std::vector<std::byte> want = run(one, *variant, test_case);
        EXPECT_TRUE(want == run(three, *variant, test_case) && want == run(three, *variant, test_case))
            << contract->name << " " << variant->name << " " << test_case.name;
        compared += !want.empty();
      }
    }
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace meshloom::backends::cpu
