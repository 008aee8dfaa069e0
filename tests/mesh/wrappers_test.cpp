// Transports around other transports: what they find, what they add, and that bytes are as without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "backends/threads/backend.h"
#include "hal/transport/link_model.h"
#include "hal/wrappers/checked_transport.h"
#include "hal/wrappers/counted_transport.h"
#include "hal/wrappers/delayed_transport.h"
#include "tests/mesh/ranks.h"
#include "tests/message_of.h"

namespace meshloom::tests {
namespace {

using backends::threads::run_ranks;
using hal::Envelope;
using hal::LinkModel;
using hal::Transport;
using testing::AllOf;
using testing::HasSubstr;

struct Said {
  Envelope envelope;
  std::size_t bytes;
};

// What is thrown when rank 0 sends these messages to rank 1, which expects those.
std::string thrown(const std::vector<Said>& sent, const std::vector<Said>& expected) {
  return message_of([&] {
    run_ranks(2, [&](std::unique_ptr<Transport> plain) {
      const std::unique_ptr<Transport> transport = hal::checked(std::move(plain));
      std::vector<Bytes> memory;
      std::vector<std::unique_ptr<hal::Request>> open;
      for (const Said& said : transport->rank() == 0 ? sent : expected) {
        Bytes& bytes = memory.emplace_back(said.bytes);
        open.push_back(transport->rank() == 0 ? transport->send(1, said.envelope, bytes)
                                              : transport->receive(0, said.envelope, bytes));
      }
      hal::wait(open);
    });
  });
}

TEST(Checked, TellsTheFirstDifferenceWithBothRanks) {
  const Said first{{1, "all_gather", "decoder/layer0"}, 16}, second{{1, "shift", "decoder/layer1"}, 16};
  EXPECT_EQ(thrown({first, second}, {first, second}), "no error");
  Said planted = second;
  planted.envelope.op = "all_to_all";
  EXPECT_THAT(
      thrown({first, second}, {first, planted}),
      AllOf(HasSubstr("message 1 from rank 0 ("), HasSubstr(" to rank 1 ("),
            HasSubstr(
                "both ranks must mean the same op; found 'shift' ('shift' of 'decoder/layer1') on rank 0, "
                "'all_to_all' ('all_to_all' of 'decoder/layer1') on rank 1")));
  planted = second;
  planted.envelope.path = "decoder/layer2";
  EXPECT_THAT(thrown({first, second}, {first, planted}),
              HasSubstr("mean the same path; found 'decoder/layer1'"));
  planted = second;
  planted.bytes = 15;
  EXPECT_THAT(thrown({first, second}, {first, planted}),
              AllOf(HasSubstr("mean the same bytes; found 16 bytes"), HasSubstr("15 bytes")));
  planted = second;
  planted.envelope.tag = 2;
  EXPECT_THAT(thrown({first, second}, {first, planted}), HasSubstr("mean the same tag; found tag 1"));
  EXPECT_THAT(thrown({first, second}, {second, first}),
              AllOf(HasSubstr("message 0 from"), HasSubstr("'all_gather' of 'decoder/layer0'")));
}

TEST(Checked, LongPathsAreComparedToTheirEnd) {
  const std::string path(5000, 'x');
  const Said one{{1, "shift", path + "a"}, 4}, other{{1, "shift", path + "b"}, 4};
  EXPECT_EQ(thrown({one}, {one}), "no error");
  EXPECT_THAT(thrown({one}, {other}), HasSubstr("mean the same path"));
}

TEST(Checked, WhatAgreesIsAsWithout) {
  run_ranks(3, [](std::unique_ptr<Transport> transport) {
    const std::unique_ptr<Transport> checking = hal::checked(std::move(transport));
    EXPECT_EQ(run_random_collectives(*checking, 77, 40, 2000), "");
  });
}

TEST(Checked, AnAbortGoesThrough) {
  EXPECT_THAT(message_of([] {
                run_ranks(2, [](std::unique_ptr<Transport> plain) {
                  const std::unique_ptr<Transport> transport = hal::checked(std::move(plain));
                  if (transport->rank() == 0) transport->abort("no room");
                  std::byte byte;
                  const auto open = transport->receive(0, {}, std::span(&byte, 1));
                  while (!open->done()) {
                  }
                });
              }),
              HasSubstr("no room"));
}

TEST(Delayed, ChangesNoBytes) {
  run_ranks(3, [](std::unique_ptr<Transport> transport) {
    const LinkModel link{1e-4, 50e6, 3e-4};
    const std::unique_ptr<Transport> slow =
        hal::checked(hal::delayed(std::move(transport), link, {{1, 2.0}}));
    EXPECT_EQ(run_random_collectives(*slow, 99, 25, 2000), "");
  });
}

// Only lower bounds: the machine may be slower.
TEST(Delayed, TakesAtLeastTheLatencyAndTheBytesTime) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](const LinkModel& link, std::size_t bytes, const std::map<int, double>& slow) {
    double took = 0;
    run_ranks(2, [&](std::unique_ptr<Transport> plain) {
      const std::unique_ptr<Transport> transport = hal::delayed(std::move(plain), link, slow);
      Bytes there(bytes), back(bytes);
      std::vector<std::unique_ptr<hal::Request>> open;
      const Clock::time_point begin = Clock::now();
      const bool first = transport->rank() == 0;
      const auto send = [&] { open.push_back(transport->send(first ? 1 : 0, {}, there)); };
      const auto receive = [&] { open.push_back(transport->receive(first ? 1 : 0, {}, back)); };
      if (first) send();
      receive();
      hal::wait(open);
      if (!first) send();
      hal::wait(open);
      if (first) took = std::chrono::duration<double>(Clock::now() - begin).count();
    });
    return took;
  };
  EXPECT_GE(seconds({5e-3, 0, 0}, 1, {}), 2 * 5e-3);
  EXPECT_GE(seconds({1e-6, 1e6, 0}, 5000, {}), 2 * 5e-3);
  EXPECT_GE(seconds({1e-3, 1e6, 0}, 2000, {{1, 3.0}}), 2 * 3 * 3e-3);
}

TEST(LinkModel, IsReadAndWritten) {
  const LinkModel link = hal::parse_link("latency=0.2ms bandwidth=100MB/s", "--link");
  EXPECT_DOUBLE_EQ(link.latency, 0.2e-3);
  EXPECT_DOUBLE_EQ(link.bandwidth, 100e6);
  EXPECT_EQ(link.jitter, 0);
  EXPECT_EQ(to_string(link), "latency=200us bandwidth=100MB/s");
  const LinkModel other = hal::parse_link(" bandwidth=1Gbit/s  jitter=50us latency=1s ", "--link");
  EXPECT_DOUBLE_EQ(other.bandwidth, 125e6);
  EXPECT_DOUBLE_EQ(other.jitter, 50e-6);
  EXPECT_EQ(to_string(other), "latency=1s bandwidth=125MB/s jitter=50us");
  EXPECT_DOUBLE_EQ(hal::parse_link("latency=1us bandwidth=2MiB/s jitter=0s", "--link").bandwidth, 2 << 20);
}

TEST(LinkModel, WhatIsNoLinkIsRefused) {
  const auto error = [](const std::string& text) {
    return message_of([&] { hal::parse_link(text, "--link"); });
  };
  EXPECT_EQ(error("latency=0ms bandwidth=1MB/s"), "--link: latency must be above zero; found '0ms'");
  EXPECT_EQ(error("latency=1ms bandwidth=0MB/s"), "--link: bandwidth must be above zero; found '0MB/s'");
  EXPECT_EQ(error("latency=-1ms bandwidth=1MB/s"), "--link: latency must be above zero; found '-1ms'");
  EXPECT_EQ(error("latency=1ms bandwidth=-5GB/s"), "--link: bandwidth must be above zero; found '-5GB/s'");
  EXPECT_EQ(error("latency=1ms bandwidth=1MB/s jitter=-1us"),
            "--link: jitter must not be negative; found '-1us'");
  EXPECT_EQ(error("latency=1 bandwidth=1MB/s"),
            "--link: latency must be a number and one of the units s, ms, us, ns; found '1'");
  EXPECT_THAT(error("latency=nans bandwidth=1MB/s"), HasSubstr("must be a number"));
  EXPECT_THAT(error("latency=1ms bandwidth=fast"), HasSubstr("one of the units B/s, kB/s"));
  EXPECT_THAT(error("latency=1ms"), HasSubstr("must have a latency and a bandwidth"));
  EXPECT_THAT(error(""), HasSubstr("must have a latency and a bandwidth"));
  EXPECT_THAT(error("latency=1ms latency=2ms bandwidth=1MB/s"), HasSubstr("latency must be given once"));
  EXPECT_THAT(error("latency=1ms bandwith=1MB/s"),
              HasSubstr("did you mean 'bandwidth'?; found 'bandwith=1MB/s'"));
}

TEST(Slow, RanksAndFactorsAreRead) {
  EXPECT_EQ(hal::parse_slow("1:3,2:1.5", 3, "--slow"), (std::map<int, double>{{1, 3.0}, {2, 1.5}}));
  const auto error = [](const std::string& text) {
    return message_of([&] { hal::parse_slow(text, 3, "--slow"); });
  };
  EXPECT_EQ(error("3:2"), "--slow: a rank must be from 0 to 2; found '3:2'");
  EXPECT_EQ(error("-1:2"), "--slow: a rank must be from 0 to 2; found '-1:2'");
  EXPECT_EQ(error("1:0.5"), "--slow: a factor must be at least 1; found '1:0.5'");
  EXPECT_EQ(error("1:2,1:3"), "--slow: a rank must be given once; found '1:2,1:3'");
  for (const char* text : {"", "1", "1:", "x:2", "1:2x", "1:inf"})
    EXPECT_THAT(error(text), HasSubstr("a slowed rank is written as RANK:FACTOR")) << text;
}

}  // namespace
}  // namespace meshloom::tests
