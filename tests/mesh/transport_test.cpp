// Messages between ranks that are threads, and collectives over them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "backends/threads/backend.h"
#include "hal/wrappers/checked_transport.h"
#include "hal/wrappers/counted_transport.h"
#include "hal/wrappers/delayed_transport.h"
#include "tests/mesh/ranks.h"
#include "tests/message_of.h"
#include "trainer/execute/agreed_error.h"
#include "trainer/execute/exchange.h"

namespace meshloom::tests {
namespace {

using backends::threads::run_ranks;
using hal::Envelope;
using hal::Transport;
using testing::HasSubstr;
using Wait = std::vector<std::unique_ptr<hal::Request>>;

std::span<const std::byte> bytes_of(const int& value) { return std::as_bytes(std::span(&value, 1)); }
std::span<std::byte> bytes_of(int& value) { return std::as_writable_bytes(std::span(&value, 1)); }

void send(Transport& transport, int to, int tag, int value) {
  Wait open;
  open.push_back(transport.send(to, {tag, "test", ""}, bytes_of(value)));
  hal::wait(open);
}

int receive(Transport& transport, int from, int tag) {
  int value = 0;
  Wait open;
  open.push_back(transport.receive(from, {tag, "test", ""}, bytes_of(value)));
  hal::wait(open);
  return value;
}

TEST(Threads, RanksKnowEachOther) {
  std::atomic<int> sum = 0;
  run_ranks(3, [&](std::unique_ptr<Transport> transport) {
    EXPECT_EQ(transport->size(), 3);
    EXPECT_EQ(transport->peer(2).node, transport->peer(0).node);
    EXPECT_FALSE(transport->peer(0).host.empty());
    sum += 1 << transport->rank();
  });
  EXPECT_EQ(sum, 7);
  EXPECT_EQ(message_of([] { run_ranks(0, [](std::unique_ptr<Transport>) {}); }),
            "ranks: there must be at least one; found 0");
}

TEST(Threads, TagsChooseAndOrderIsKept) {
  run_ranks(2, [](std::unique_ptr<Transport> transport) {
    constexpr int kMessages = 20;
    std::vector<int> values(2 * kMessages, -1);
    Wait open;
    if (transport->rank() == 0) {
      for (int i = 0; i < 2 * kMessages; ++i) values[static_cast<std::size_t>(i)] = i;
      for (int i = 0; i < 2 * kMessages; ++i)  // tags 0 and 1 in turn
        open.push_back(transport->send(1, {i % 2, "test", ""},
                                       bytes_of(std::as_const(values[static_cast<std::size_t>(i)]))));
      hal::wait(open);
      return;
    }
    for (int tag : {1, 0})
      for (int i = 0; i < kMessages; ++i)
        open.push_back(transport->receive(0, {tag, "test", ""},
                                          bytes_of(values[static_cast<std::size_t>(tag * kMessages + i)])));
    // Asked in the wrong order: what counts is the order in which they were begun.
    std::reverse(open.begin(), open.end());
    hal::wait(open);
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_EQ(values[static_cast<std::size_t>(i)], 2 * i);
      EXPECT_EQ(values[static_cast<std::size_t>(kMessages + i)], 2 * i + 1);
    }
  });
}

TEST(Threads, EmptyMessagesArrive) {
  run_ranks(2, [](std::unique_ptr<Transport> transport) {
    Wait open;
    if (transport->rank() == 0)
      open.push_back(transport->send(1, {}, {}));
    else
      open.push_back(transport->receive(0, {}, {}));
    hal::wait(open);
  });
}

TEST(Threads, WrongArgumentsAndSizesAreErrors) {
  EXPECT_THAT(
      message_of([] {
        run_ranks(2, [](std::unique_ptr<Transport> transport) { send(*transport, transport->rank(), 0, 1); });
      }),
      HasSubstr("test: a send must name another rank below 2; found rank"));
  EXPECT_THAT(message_of([] {
                run_ranks(2, [](std::unique_ptr<Transport> transport) {
                  transport->receive(1 - transport->rank(), {hal::kMaxTag + 1, "x", "y"}, {});
                });
              }),
              HasSubstr("x of y: a receive must have a tag from 0 to 4194303; found 4194305"));
  EXPECT_THAT(message_of([] {
                run_ranks(2, [](std::unique_ptr<Transport> transport) {
                  std::vector<std::byte> data(static_cast<std::size_t>(hal::kMaxMessageBytes) + 1);
                  transport->send(1 - transport->rank(), {}, data);
                });
              }),
              HasSubstr("a send must be of at most 16777216 bytes; found 16777217"));
  EXPECT_THAT(message_of([] {
                run_ranks(2, [](std::unique_ptr<Transport> transport) {
                  if (transport->rank() == 0) return send(*transport, 1, 0, 5);
                  std::byte data[3];
                  Wait open;
                  open.push_back(transport->receive(0, {0, "all_gather", "w"}, data));
                  hal::wait(open);
                });
              }),
              HasSubstr("all_gather of w: a message from rank 0"));
}

TEST(Threads, ARankThatEndsIsNamed) {
  const auto outcome = [](int who_ends) {
    return message_of([&] {
      run_ranks(3, [&](std::unique_ptr<Transport> transport) {
        if (transport->rank() == who_ends) return;
        if (transport->rank() == 0) receive(*transport, who_ends, 0);
      });
    });
  };
  EXPECT_THAT(outcome(2), HasSubstr("must send its piece; found it has ended"));
  EXPECT_THAT(outcome(2), HasSubstr("rank 2 ("));
}

TEST(Threads, AnAbortEndsAllRanksWithItsReason) {
  std::atomic<int> aborted = 0;
  std::mutex mutex;
  std::vector<std::string> reasons;
  const std::string thrown = message_of([&] {
    run_ranks(4, [&](std::unique_ptr<Transport> transport) {
      try {
        if (transport->rank() == 2) transport->abort("the loss is NaN");
        receive(*transport, (transport->rank() + 1) % 4, 0);  // which nobody sends
      } catch (const hal::JobAborted& error) {
        ++aborted;
        const std::lock_guard lock(mutex);
        reasons.push_back(error.what());
        throw;
      }
    });
  });
  EXPECT_EQ(aborted, 4);
  EXPECT_THAT(reasons, testing::Each(HasSubstr("the loss is NaN")));
  EXPECT_THAT(thrown, HasSubstr("the loss is NaN"));
}

TEST(Threads, AnExceptionOfARankEndsTheOthersAndIsThrown) {
  const std::string thrown = message_of([] {
    run_ranks(4, [](std::unique_ptr<Transport> transport) {
      if (transport->rank() == 1) throw Error("disk", "must have room", "none");
      receive(*transport, (transport->rank() + 1) % 4, 0);
    });
  });
  EXPECT_EQ(thrown, "disk: must have room; found none");
}

TEST(Exchange, RandomMovesEqualTheReference) {
  for (int ranks : {1, 2, 3, 5})
    run_ranks(ranks, [](std::unique_ptr<Transport> transport) {
      EXPECT_EQ(run_random_collectives(*transport, 1000, 40, 3000, nullptr), "");
    });
}

TEST(Exchange, CountedBytesAreThoseOfTheLists) {
  run_ranks(3, [](std::unique_ptr<Transport> transport) {
    hal::TrafficCount count;
    const std::unique_ptr<Transport> counting = hal::counted(std::move(transport), count);
    ExpectedTraffic wanted{std::vector<std::int64_t>(3), std::vector<std::int64_t>(3),
                           std::vector<std::int64_t>(3), std::vector<std::int64_t>(3)};
    EXPECT_EQ(run_random_collectives(*counting, 5, 30, 500, &wanted), "");
    for (std::size_t peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(count.sent[peer], (hal::Traffic{wanted.sent_messages[peer], wanted.sent[peer]}));
      EXPECT_EQ(count.received[peer], (hal::Traffic{wanted.received_messages[peer], wanted.received[peer]}));
    }
    EXPECT_GT(wanted.sent[static_cast<std::size_t>((counting->rank() + 1) % 3)], 0);
  });
}

// Many moves are on their way at once, and end in another order than they began in.
TEST(ExchangeThread, RandomMovesEqualTheReference) {
  for (int ranks : {1, 2, 3, 5})
    run_ranks(ranks, [](std::unique_ptr<Transport> plain) {
      const std::unique_ptr<Transport> transport =
          hal::checked(hal::delayed(std::move(plain), {50e-6, 100e6, 100e-6}));
      const auto rank = static_cast<std::size_t>(transport->rank());
      const trainer::Group group = trainer::all_ranks(*transport);
      trainer::ExchangeThread exchange(*transport, 60);
      for (int round = 0; round < 6; ++round) {
        constexpr std::size_t kMany = 8;
        std::vector<RandomCollective> made;
        std::vector<Bytes> outputs;
        std::vector<std::array<std::span<std::byte>, 2>> tensors;
        std::vector<hal::Envelope> envelopes;
        std::vector<std::uint64_t> numbers;
        for (std::size_t i = 0; i < kMany; ++i) {
          made.push_back(
              random_collective(100 * static_cast<std::uint64_t>(round) + i, transport->size(), 3000));
          outputs.emplace_back(made.back().outputs[rank].size());
          envelopes.push_back({static_cast<std::int32_t>(i), made.back().op, std::to_string(i)});
        }
        for (std::size_t i = 0; i < kMany; ++i) tensors.push_back({made[i].inputs[rank], outputs[i]});
        for (std::size_t i = 0; i < kMany; ++i)
          numbers.push_back(exchange.begin(group, made[i].lists[rank], tensors[i], envelopes[i]));
        for (const std::size_t i : {5U, 0U, 7U, 1U, 2U, 6U, 3U, 4U}) {
          exchange.end(numbers[i]);
          EXPECT_EQ(outputs[i], made[i].outputs[rank]) << made[i].op << " of round " << round;
        }
        // Between rounds the transport is free.
        EXPECT_EQ(trainer::agreed_error(*transport, "", 60), "");
      }
    });
}

// Errors of the thread come out of end() and of begin(), every time; what is on its way is withdrawn.
TEST(ExchangeThread, ThrowsWhatItMet) {
  const std::string thrown = message_of([] {
    run_ranks(2, [](std::unique_ptr<Transport> transport) {
      const int rank = transport->rank();
      const std::vector<std::int64_t> sizes{4, 4};
      Bytes input(4), output(8);
      const std::array<std::span<std::byte>, 2> tensors{input, output};
      const trainer::Group group{0, 1};
      const auto moves = kernels::collective::all_gather(sizes, rank);
      const hal::Envelope first{0, "all_gather", "layer0"}, second{1, "all_gather", "layer1"};
      trainer::ExchangeThread exchange(*transport, 0.3);
      exchange.end(exchange.begin(group, moves, tensors, first));
      if (rank == 1) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        return;
      }
      const std::uint64_t number = exchange.begin(group, moves, tensors, second);
      const std::string error = message_of([&] { exchange.end(number); });
      EXPECT_EQ(message_of([&] { exchange.end(number); }), error);
      EXPECT_EQ(message_of([&] { exchange.begin(group, moves, tensors, second); }), error);
      throw hal::Error("seen", error);
    });
  });
  EXPECT_THAT(thrown, HasSubstr("all_gather of layer1: rank 1 ("));
  EXPECT_THAT(thrown, HasSubstr("must send move"));
}

TEST(Exchange, LongMovesAreCutIntoMessages) {
  run_ranks(2, [](std::unique_ptr<Transport> transport) {
    hal::TrafficCount count;
    const std::unique_ptr<Transport> counting = hal::counted(std::move(transport), count);
    const int rank = counting->rank();
    const std::vector<std::int64_t> sizes{2 * hal::kMaxMessageBytes + 5, 7};
    Bytes input(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]));
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::byte>(i * 31 + i / 65536);
    Bytes output(static_cast<std::size_t>(sizes[static_cast<std::size_t>(1 - rank)]));
    const std::span<std::byte> tensors[] = {input, output};
    trainer::exchange(*counting, trainer::all_ranks(*counting), kernels::collective::shift(sizes, 1, rank),
                      tensors, {0, "shift", ""}, 60);
    const auto peer = static_cast<std::size_t>(1 - rank);
    EXPECT_EQ(count.sent[peer].messages, rank == 0 ? 3 : 1);
    for (std::size_t i = 0; i < output.size(); ++i)
      ASSERT_EQ(output[i], static_cast<std::byte>(i * 31 + i / 65536)) << i;
  });
}

TEST(Exchange, AGroupIsAnyRanksInAnyOrder) {
  run_ranks(4, [](std::unique_ptr<Transport> transport) {
    const trainer::Group group{3, 0, 2};
    if (transport->rank() == 1) return;
    const int place = transport->rank() == 3 ? 0 : transport->rank() == 0 ? 1 : 2;
    std::vector<std::int64_t> sizes{1, 1, 1};
    Bytes input{static_cast<std::byte>(transport->rank())}, output(3);
    const std::span<std::byte> tensors[] = {input, output};
    trainer::exchange(*transport, group, kernels::collective::all_gather(sizes, place), tensors, {}, 60);
    EXPECT_EQ(output, (Bytes{std::byte{3}, std::byte{0}, std::byte{2}}));
  });
}

TEST(Exchange, ASilentRankIsNamedWithItsMove) {
  std::string thrown;
  int lost = -1;
  try {
    run_ranks(3, [](std::unique_ptr<Transport> transport) {
      if (transport->rank() == 1) {
        receive(*transport, 0, 99);  // waits for ever, and sends nothing
        return;
      }
      const std::vector<std::int64_t> sizes{4, 4, 4};
      Bytes input(4), output(12);
      const std::span<std::byte> tensors[] = {input, output};
      trainer::exchange(*transport, trainer::all_ranks(*transport),
                        kernels::collective::all_gather(sizes, transport->rank()), tensors,
                        {0, "all_gather", "decoder/layer0"}, 0.3);
    });
  } catch (const hal::PeerLost& error) {
    thrown = error.what();
    lost = error.rank();
  }
  EXPECT_EQ(lost, 1);
  EXPECT_THAT(thrown, HasSubstr("all_gather of decoder/layer0: rank 1 ("));
  EXPECT_THAT(thrown,
              testing::ContainsRegex("must send move [0-9] \\(bytes \\[4, 8\\) of tensor 1\\) within 0.3 s; "
                                     "found nothing since [0-9:]{8}"));
}

TEST(Exchange, WrongListsAreErrors) {
  const auto thrown = [](std::vector<Move> moves, trainer::Group group) {
    return message_of([&] {
      run_ranks(2, [&](std::unique_ptr<Transport> transport) {
        Bytes input(4), output(4);
        const std::span<std::byte> tensors[] = {input, output};
        if (transport->rank() == 0)
          trainer::exchange(*transport, group, moves, tensors, {0, "shift", "w"}, 60);
      });
    });
  };
  EXPECT_THAT(thrown({{1, true, 0, 2, 3}}, {0, 1}),
              HasSubstr("shift of w: move 0 must lie within tensor 0; found bytes [2, 5) of 4"));
  EXPECT_THAT(thrown({{1, true, 2, 0, 1}}, {0, 1}),
              HasSubstr("move 0 must lie within tensor 2; found bytes [0, 1) of 0"));
  EXPECT_THAT(thrown({{2, true, 0, 0, 1}}, {0, 1}), HasSubstr("move 0 must name one of 2 places; found 2"));
  EXPECT_THAT(thrown({}, {1}), HasSubstr("the rank must be one of the group; found ranks 1"));
  EXPECT_THAT(thrown({{0, true, 0, 0, 1}}, {0, 1}),
              HasSubstr("moves to oneself must come in pairs; found 1 out, 0 in"));
}

TEST(AgreedError, IsOneTextOnAllRanks) {
  const auto agreed = [](std::vector<std::string> own) {
    std::vector<std::string> said(own.size());
    run_ranks(static_cast<int>(own.size()), [&](std::unique_ptr<Transport> transport) {
      const auto rank = static_cast<std::size_t>(transport->rank());
      said[rank] = trainer::agreed_error(*transport, own[rank], 60);
    });
    for (const std::string& text : said) EXPECT_EQ(text, said[0]);
    return said[0];
  };
  EXPECT_EQ(agreed({"", "", ""}), "");
  EXPECT_EQ(agreed({"no link", "no link", "no link"}), "no link");
  EXPECT_THAT(agreed({"", "disk full", ""}), testing::MatchesRegex("rank 1 \\(.*\\): disk full"));
  EXPECT_THAT(agreed({"", "disk full", "no file"}), testing::EndsWith("disk full (and 1 more rank)"));
  EXPECT_EQ(agreed({std::string(5000, 'x'), std::string(5000, 'x')}), std::string(2047, 'x'));
}

TEST(Exchange, SumsAreMadeInOrder) {
  const std::vector<float> pieces{1e8f, 1.0f, -1e8f, 2.0f, 3.0f, 4.0f};
  std::vector<float> sum(2);
  trainer::sum_in_order(pieces, 3, sum);
  EXPECT_EQ(sum, (std::vector<float>{(1e8f + -1e8f) + 3.0f, (1.0f + 2.0f) + 4.0f}));
  EXPECT_THAT(message_of([&] { trainer::sum_in_order(pieces, 2, sum); }),
              HasSubstr("there must be 2 pieces of 2 floats"));
}

}  // namespace
}  // namespace meshloom::tests
