// What every device promises, without a kernel: memory, its ledger, the order of commands and of host
// traffic. Each case runs on every device found of each backend built, bare and under the checking wrapper.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"

namespace meshloom {
namespace {

using hal::Access;
using hal::Binding;
using hal::Buffer;
using hal::Device;
using testing::HasSubstr;

struct Backends {
  hal::Registry registry;
  kernels::Catalog catalog;
  Backends() {
    kernels::add_contracts(catalog);
    register_backends(registry, catalog);
  }
};

std::vector<std::string> backend_names() { return Backends().registry.backends(); }

class DeviceTest : public testing::TestWithParam<std::string> {
 protected:
  std::vector<hal::DeviceInfo> listed() {
    for (hal::BackendDevices& found : backends_.registry.enumerate())
      if (found.backend == GetParam()) {
        if (found.devices.empty()) {
          EXPECT_NE(found.why_none, "");
        }
        return found.devices;
      }
    ADD_FAILURE() << "no found of backend " << GetParam();
    return {};
  }

  // `test` on every device.
  void each(const std::function<void(Device&)>& test) {
    const std::vector<hal::DeviceInfo> devices = listed();
    if (devices.empty()) GTEST_SKIP() << "no device of backend " << GetParam() << " here";
    for (const hal::DeviceInfo& info : devices)
      for (const bool check : {false, true}) {
        SCOPED_TRACE(info.id + (check ? ", checked" : ""));
        std::unique_ptr<Device> device = backends_.registry.open(info.id);
        if (check) device = hal::checked(std::move(device));
        test(*device);
        EXPECT_EQ(device->live_buffers(), 0);
        EXPECT_EQ(device->allocated_bytes(), 0);
      }
  }

  // The same, left out for the device that keeps no data.
  void each_with_data(const std::function<void(Device&)>& test) {
    if (GetParam() == "null") GTEST_SKIP() << "keeps no data";
    each(test);
  }

 private:
  Backends backends_;
};

Binding part(const std::unique_ptr<Buffer>& buffer, std::int64_t word, std::int64_t words, Access access) {
  return {buffer.get(), word * 4, words * 4, access};
}
Binding whole(const std::unique_ptr<Buffer>& buffer, Access access) {
  return {buffer.get(), 0, buffer->bytes(), access};
}

using Words = std::vector<std::uint32_t>;

void write(Device& device, Buffer& buffer, const Words& words, std::int64_t word = 0) {
  device.write(buffer, word * 4, std::as_bytes(std::span(words)));
}
Words read(Device& device, const Buffer& buffer, std::int64_t word = 0, std::int64_t words = -1) {
  Words result(static_cast<std::size_t>(words < 0 ? buffer.bytes() / 4 - word : words));
  device.read(buffer, word * 4, std::as_writable_bytes(std::span(result)));
  return result;
}
Words counting(std::size_t count, std::uint32_t first) {
  Words words(count);
  std::iota(words.begin(), words.end(), first);
  return words;
}
std::uint32_t& word_at(const hal::HostRange& range, std::size_t i) {
  return reinterpret_cast<std::uint32_t*>(range.data)[i];
}

std::unique_ptr<hal::CommandList> recorded(Device& device, const std::string& name,
                                           const std::function<void(hal::CommandList&)>& commands) {
  std::unique_ptr<hal::CommandList> list = device.record(name);
  commands(*list);
  list->finish();
  return list;
}

TEST_P(DeviceTest, NotesItsTime) {
  each_with_data([](Device& device) {
    if (!device.info().timestamps) {
      auto list = device.record("untimed");
      EXPECT_THROW(list->timestamp(), hal::Error);
      return;
    }
    constexpr std::int64_t kWords = 1 << 22;
    const auto buffer = device.allocate(kWords * 4, "filled");
    auto list = recorded(device, "timed", [&](hal::CommandList& commands) {
      commands.timestamp();
      commands.fill(part(buffer, 0, 1, Access::write), hal::word(std::int64_t{1}), "one word");
      commands.timestamp();
      for (int i = 0; i < 16; ++i) {
        commands.fill(whole(buffer, Access::write), hal::word(std::int64_t{2}), "all words");
        commands.barrier();
      }
      commands.timestamp();
    });
    for (int submit = 0; submit < 2; ++submit) {
      const auto begin = std::chrono::steady_clock::now();
      device.submit(*list);
      device.wait();
      const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      const std::vector<double> seconds = list->intervals();
      ASSERT_EQ(seconds.size(), 2u);
      EXPECT_GE(seconds[0], 0);
      EXPECT_GT(seconds[1], 0);
      EXPECT_LE(seconds[0] + seconds[1], 1.1 * wall) << "a clock that runs in other units";
    }
    EXPECT_EQ(read(device, *buffer, kWords - 1, 1), Words{2});
  });
}

TEST_P(DeviceTest, SaysWhatItIs) {
  for (const hal::DeviceInfo& info : listed()) {
    SCOPED_TRACE(info.id);
    if (info.computes) {  // one that does not stands for another backend's
      EXPECT_EQ(info.backend, GetParam());
    }
    EXPECT_THAT(info.id, testing::StartsWith(GetParam()));
    EXPECT_NE(info.name, "");
    EXPECT_NE(info.driver, "");
    EXPECT_NE(info.profile.name, "");
    EXPECT_GT(info.limits.memory_bytes, 0);
    EXPECT_GT(info.limits.max_allocation_bytes, 0);
    EXPECT_GT(info.limits.max_workgroup, 0);
    EXPECT_GT(info.limits.subgroup, 0);
    EXPECT_GE(info.limits.max_bindings, 8);
    EXPECT_GE(info.limits.max_constant_words, 16);
    EXPECT_GT(info.limits.offset_alignment, 0);
    EXPECT_EQ(info.limits.offset_alignment & (info.limits.offset_alignment - 1), 0) << "not a power of two";
    EXPECT_GT(info.profile.memory_bytes, 0);
    EXPECT_GT(info.profile.flops(hal::DType::f32), 0);
  }
}

TEST_P(DeviceTest, CountsBytesExactly) {
  each([](Device& device) {
    EXPECT_EQ(device.allocated_bytes(), 0);
    std::unique_ptr<Buffer> a = device.allocate(100, "a");
    std::unique_ptr<Buffer> b = device.allocate(4097, "b");
    EXPECT_EQ(a->bytes(), 100);
    EXPECT_EQ(b->label(), "b");
    EXPECT_EQ(device.allocated_bytes(), 4197);
    EXPECT_EQ(device.live_buffers(), 2);
    b.reset();
    EXPECT_EQ(device.allocated_bytes(), 100);
    EXPECT_EQ(device.peak_bytes(), 4197);
    device.reset_peak();
    EXPECT_EQ(device.peak_bytes(), 100);
  });
}

TEST_P(DeviceTest, CountsMemoryOfTheHostForItself) {
  each([](Device& device) {
    using hal::MemoryKind;
    const auto a = device.allocate(100, "a");
    auto b = device.allocate(4097, "b", MemoryKind::host);
    EXPECT_EQ(a->memory(), MemoryKind::device);
    EXPECT_EQ(a->host_address(), nullptr);
    EXPECT_EQ(b->memory(), MemoryKind::host);
    EXPECT_NE(b->host_address(), nullptr);
    EXPECT_EQ(device.allocated_bytes(), 100);
    EXPECT_EQ(device.allocated_bytes(MemoryKind::host), 4097);
    EXPECT_EQ(device.live_buffers(), 2);
    b.reset();
    EXPECT_EQ(device.allocated_bytes(MemoryKind::host), 0);
    EXPECT_EQ(device.peak_bytes(MemoryKind::host), 4097);
    EXPECT_EQ(device.peak_bytes(), 100);
  });
}

TEST_P(DeviceTest, GivesMemoryBack) {
  each([](Device& device) {
    for (int round = 0; round < 200; ++round) {
      const auto a = device.allocate(1 << 20, "a"), b = device.allocate(64, "b");
      ASSERT_EQ(device.allocated_bytes(), (1 << 20) + 64);
    }
    EXPECT_EQ(device.peak_bytes(), (1 << 20) + 64);
    std::vector<std::unique_ptr<Buffer>> many;
    for (int i = 0; i < 500; ++i) many.push_back(device.allocate(4 * (i + 1), "many"));
    EXPECT_EQ(device.live_buffers(), 500);
  });
}

TEST_P(DeviceTest, RefusesWhatItCannotHold) {
  each([](Device& device) {
    EXPECT_THROW(device.allocate(0, "nothing"), Error);
    EXPECT_THROW(device.allocate(-4, "less"), Error);
    try {
      device.allocate(device.info().limits.max_allocation_bytes + 64, "the moon");
      ADD_FAILURE() << "one byte too many was given";
    } catch (const hal::OutOfMemory& error) {
      EXPECT_THAT(error.what(), HasSubstr("the moon"));
    }
    EXPECT_EQ(device.live_buffers(), 0);
  });
}

TEST_P(DeviceTest, AProfilesMemoryIsTheLimit) {
  each([](Device& device) {
    hal::Profile tiny = device.profile();
    tiny.name = "tiny";
    tiny.memory_bytes = 1 << 20;
    device.run_as(tiny);
    EXPECT_TRUE(device.runs_as_another());
    std::unique_ptr<Buffer> all = device.allocate(1 << 20, "all");
    try {
      device.allocate(4, "one word more");
      ADD_FAILURE() << "the profile's memory is exceeded";
    } catch (const hal::OutOfMemory& error) {
      EXPECT_THAT(error.what(), HasSubstr("one word more"));
      EXPECT_THAT(error.what(), HasSubstr("as tiny"));
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(1 << 20)));
    }
    all.reset();
    EXPECT_NE(device.allocate(4, "fits now"), nullptr);
  });
}

TEST_P(DeviceTest, WritesAndReadsRanges) {
  each_with_data([](Device& device) {
    const auto buffer = device.allocate(4 * 1000, "data");
    write(device, *buffer, counting(1000, 1));
    EXPECT_EQ(read(device, *buffer), counting(1000, 1));
    write(device, *buffer, {7, 8, 9}, 501);
    EXPECT_EQ(read(device, *buffer, 500, 5), (Words{501, 7, 8, 9, 505}));
    EXPECT_EQ(read(device, *buffer, 999, 1), Words{1000});
  });
}

TEST_P(DeviceTest, MovesMegabytes) {
  each_with_data([](Device& device) {
    constexpr std::size_t kWords = (9 << 20) / 4 + 13;
    const auto a = device.allocate(kWords * 4, "a"), b = device.allocate(kWords * 4, "b");
    const Words words = counting(kWords, 5);
    write(device, *a, words);
    const auto list = recorded(device, "copy", [&](hal::CommandList& commands) {
      commands.copy(whole(a, Access::read), whole(b, Access::write), "a to b");
    });
    device.submit(*list);
    EXPECT_EQ(read(device, *b), words);
  });
}

TEST_P(DeviceTest, CopiesAndFillsExactRanges) {
  each_with_data([](Device& device) {
    const auto a = device.allocate(4 * 64, "a"), b = device.allocate(4 * 64, "b");
    write(device, *a, counting(64, 100));
    write(device, *b, Words(64, 0xdeadbeef));
    const auto list = recorded(device, "ranges", [&](hal::CommandList& commands) {
      commands.copy(part(a, 3, 5, Access::read), part(b, 7, 5, Access::write), "five words");
      commands.fill(part(b, 21, 3, Access::write), hal::word(1.5f), "three words");
      commands.copy(part(a, 0, 1, Access::read), part(b, 63, 1, Access::write), "the last");
    });
    device.submit(*list);
    Words want(64, 0xdeadbeef);
    for (std::uint32_t i = 0; i < 5; ++i) want[7 + i] = 103 + i;
    for (std::size_t i = 21; i < 24; ++i) want[i] = hal::word(1.5f).u;
    want[63] = 100;
    EXPECT_EQ(read(device, *b), want);
    EXPECT_EQ(read(device, *a), counting(64, 100));
  });
}

TEST_P(DeviceTest, CopiesReachMemoryOfTheHost) {
  each_with_data([](Device& device) {
    constexpr std::int64_t kWords = 100'003;
    const auto host = [&](const char* label) {
      return device.allocate(kWords * 4, label, hal::MemoryKind::host);
    };
    const auto from = host("from"), to = host("to"), through = device.allocate(kWords * 4, "through");
    const auto words = [](const std::unique_ptr<Buffer>& buffer) {
      return std::span(reinterpret_cast<std::uint32_t*>(buffer->host_address()), kWords);
    };
    write(device, *to, Words(kWords, 7));
    int mark = -1;
    const auto list = recorded(device, "there and back", [&](hal::CommandList& commands) {
      commands.copy(whole(from, Access::read), whole(through, Access::write), "there");
      commands.barrier();
      commands.copy(part(through, 1, kWords - 2, Access::read), part(to, 1, kWords - 2, Access::write),
                    "back");
      mark = commands.mark();
      commands.barrier();
      commands.fill(whole(through, Access::write), hal::word(0.0f), "after the mark");
    });
    EXPECT_EQ(mark, 0);
    for (std::uint32_t round = 1; round < 4; ++round) {
      const Words numbers = counting(kWords, round);
      std::copy(numbers.begin(), numbers.end(), words(from).begin());  // the host writes by the address
      device.submit(*list);
      device.wait_for(*list, mark);
      EXPECT_EQ(words(to).front(), 7u);
      EXPECT_EQ(words(to).back(), 7u);
      EXPECT_TRUE(std::equal(numbers.begin() + 1, numbers.end() - 1, words(to).begin() + 1)) << round;
    }
    EXPECT_EQ(read(device, *from, 0), counting(kWords, 3));
    EXPECT_EQ(read(device, *through, 0), Words(kWords, 0));
  });
}

TEST_P(DeviceTest, OnlyCopiesTakeMemoryOfTheHost) {
  each_with_data([](Device& device) {
    if (!device.info().host_visible) return;  // its own memory is that of the host
    const auto host = device.allocate(4 * 64, "the host's", hal::MemoryKind::host);
    const auto list = device.record("list");
    try {
      list->fill(whole(host, Access::write), hal::word(1.0f), "fill");
      ADD_FAILURE() << "filled";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the host's"));
    }
  });
}

TEST_P(DeviceTest, TheHostsProcessorComputesOnMemoryOfTheHost) {
  each_with_data([](Device& device) {
    const auto cpu = Backends().registry.open("cpu");
    const auto here = device.allocate(4 * 64, "here"),
               there = device.allocate(4 * 64, "there", hal::MemoryKind::host);
    const auto shared = cpu->share(*there);
    EXPECT_EQ(cpu->allocated_bytes(), 0);
    write(*cpu, *shared, counting(64, 5));
    const auto fill = recorded(*cpu, "fill", [&](hal::CommandList& commands) {
      commands.fill(part(shared, 3, 4, Access::write), hal::word(2.0f), "four words");
    });
    cpu->submit(*fill);
    const auto copy = recorded(device, "copy", [&](hal::CommandList& commands) {
      commands.copy(whole(there, Access::read), whole(here, Access::write), "to the device");
    });
    device.submit(*copy);
    Words want = counting(64, 5);
    std::fill(want.begin() + 3, want.begin() + 7, hal::word(2.0f).u);
    EXPECT_EQ(read(device, *here), want);
    EXPECT_THROW(cpu->share(*here), Error);
  });
}

TEST_P(DeviceTest, CopiesWithinABuffer) {
  each_with_data([](Device& device) {
    const auto a = device.allocate(4 * 32, "a");
    write(device, *a, counting(32, 0));
    const auto list = recorded(device, "within", [&](hal::CommandList& commands) {
      commands.copy(part(a, 0, 16, Access::read), part(a, 16, 16, Access::write), "lower to upper half");
    });
    device.submit(*list);
    EXPECT_EQ(read(device, *a, 16), counting(16, 0));
  });
}

TEST_P(DeviceTest, BarriersOrderCommands) {
  each_with_data([](Device& device) {
    constexpr std::int64_t kWords = 4096;
    const auto a = device.allocate(kWords * 4, "a"), b = device.allocate(kWords * 4, "b");
    const auto history = device.allocate(kWords * 4 * 20, "history");
    const auto list = recorded(device, "chain", [&](hal::CommandList& commands) {
      for (int i = 0; i < 20; ++i) {
        commands.fill(whole(a, Access::write), hal::word(std::int64_t{i}), "fill");
        commands.barrier();
        commands.copy(whole(a, Access::read), whole(b, Access::write), "a to b");
        commands.barrier();
        commands.copy(whole(b, Access::read), part(history, i * kWords, kWords, Access::write), "keep");
        commands.barrier();
      }
    });
    device.submit(*list);
    const Words words = read(device, *history);
    for (std::size_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], i / kWords) << i;
  });
}

TEST_P(DeviceTest, HostCallsRunInTheirPlace) {
  each_with_data([](Device& device) {
    const auto a = device.allocate(4 * 8, "a"), b = device.allocate(4 * 8, "b");
    Words seen;
    const auto list = recorded(device, "host", [&](hal::CommandList& commands) {
      commands.fill(whole(a, Access::write), hal::word(std::int64_t{7}), "sevens");
      commands.barrier();
      const std::vector<Binding> bindings{part(a, 2, 1, Access::read), part(a, 4, 2, Access::read_write)};
      commands.host_call(
          [&](std::span<const hal::HostRange> ranges) {
            ASSERT_EQ(ranges.size(), 2u);
            EXPECT_EQ(ranges[0].bytes, 4);
            EXPECT_EQ(ranges[1].bytes, 8);
            seen = {word_at(ranges[0], 0), word_at(ranges[1], 0), word_at(ranges[1], 1)};
            word_at(ranges[1], 1) += 10;
          },
          bindings, "on the host");
      commands.barrier();
      commands.copy(whole(a, Access::read), whole(b, Access::write), "keep");
    });
    device.submit(*list);
    device.wait();
    EXPECT_EQ(seen, (Words{7, 7, 7}));
    EXPECT_EQ(read(device, *b), (Words{7, 7, 7, 7, 7, 17, 7, 7}));
  });
}

TEST_P(DeviceTest, AListRunsAsOftenAsSubmitted) {
  each_with_data([](Device& device) {
    const auto counter = device.allocate(4, "counter"), copy = device.allocate(4, "copy");
    write(device, *counter, {0});
    const std::vector<Binding> bindings{whole(counter, Access::read_write)};
    const auto list = recorded(device, "count", [&](hal::CommandList& commands) {
      commands.host_call([](std::span<const hal::HostRange> ranges) { ++word_at(ranges[0], 0); }, bindings,
                         "add");
      commands.barrier();
      commands.copy(whole(counter, Access::read), whole(copy, Access::write), "keep");
    });
    for (int i = 0; i < 100; ++i) device.submit(*list);
    EXPECT_EQ(read(device, *copy), Words{100});
    device.submit(*list);
    device.wait();
    device.wait();
    EXPECT_EQ(read(device, *counter), Words{101});
    EXPECT_EQ(device.live_buffers(), 2) << "submitting must not keep memory";
  });
}

TEST_P(DeviceTest, HostTrafficKeepsItsPlaceAmongSubmits) {
  each_with_data([](Device& device) {
    constexpr std::int64_t kWords = 1 << 16;
    const auto a = device.allocate(kWords * 4, "a"), b = device.allocate(kWords * 4, "b"),
               c = device.allocate(kWords * 4, "c");
    const auto to_b = recorded(device, "to b", [&](hal::CommandList& commands) {
      commands.copy(whole(a, Access::read), whole(b, Access::write), "copy");
    });
    const auto to_c = recorded(device, "to c", [&](hal::CommandList& commands) {
      commands.copy(whole(a, Access::read), whole(c, Access::write), "copy");
    });
    for (std::uint32_t round = 0; round < 10; ++round) {
      write(device, *a, Words(kWords, 2 * round));
      device.submit(*to_b);
      write(device, *a, Words(kWords, 2 * round + 1));
      device.submit(*to_c);
      ASSERT_EQ(read(device, *b), Words(kWords, 2 * round));
      ASSERT_EQ(read(device, *c), Words(kWords, 2 * round + 1));
    }
  });
}

TEST_P(DeviceTest, AnEmptyListRuns) {
  each([](Device& device) {
    const auto list = recorded(device, "empty", [](hal::CommandList& commands) {
      commands.barrier();
      commands.barrier();
    });
    device.submit(*list);
    device.submit(*list);
    device.wait();
  });
}

TEST_P(DeviceTest, AnUnknownKernelIsNamed) {
  if (GetParam() == "null") GTEST_SKIP() << "takes any kernel";
  each([](Device& device) {
    hal::ExecutableSpec spec;
    spec.kernel = "no_such_kernel";
    try {
      device.load(spec);
      ADD_FAILURE() << "loaded a kernel that is not there";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("no_such_kernel"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceTest, testing::ValuesIn(backend_names()),
                         [](const auto& info) { return info.param; });

TEST(NullDeviceTest, RefusesToRead) {
  const auto device = Backends().registry.open("null");
  const auto buffer = device->allocate(std::int64_t{3} << 30, "three gigabytes that are not there");
  std::vector<std::byte> bytes(4);
  try {
    device->read(*buffer, 0, bytes);
    ADD_FAILURE() << "read something";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("three gigabytes"));
    EXPECT_THAT(error.what(), HasSubstr("null"));
  }
}

}  // namespace
}  // namespace meshloom
