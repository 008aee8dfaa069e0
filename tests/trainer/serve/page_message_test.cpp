// Messages about pages: what is written is read again, however it is cut, and nothing else is.
#include "trainer/serve/pages/page_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/message_of.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::KVIdentity;
using trainer::PageMessage;
using trainer::PageMessageReader;

const KVIdentity kIdentity{"weights", "model", "f32", 4, "keys f32(4, 2, 8)\n", "cpu"};

std::vector<PageMessage> examples() {
  return {trainer::PageHello{"key", kIdentity, 64},
          trainer::PageAsk{7, 1, {1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}},
          trainer::PageCancel{7},
          trainer::PageData{7, 1, {1, 2}, {5, 6, 7, 8}, std::vector<std::byte>(32, std::byte{9})},
          trainer::PageEnd{7, trainer::PageEnd::Status::refused, "it is busy"},
          trainer::PageGoodbye{"the key is unknown"}};
}

trainer::PageMessageLimits all_limits() {
  trainer::PageMessageLimits limits{};
  limits.fill(4096);
  return limits;
}

TEST(PageMessage, IsReadAgainHoweverItIsCut) {
  std::string bytes;
  for (const PageMessage& message : examples()) bytes += trainer::encoded(message);
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    PageMessageReader reader(all_limits());
    std::vector<PageMessage> found;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + random() % (round == 0 ? 1 : 300);
      reader.add(std::string_view(bytes).substr(at, size));
      at += size;
      while (auto message = reader.next()) found.push_back(std::move(*message));
    }
    ASSERT_EQ(found, examples());
  }
}

// A flipped bit anywhere is found, but in the length, where it may also mean that more is waited for.
TEST(PageMessage, NoFlippedBitIsRead) {
  for (const PageMessage& message : examples()) {
    const std::string bytes = trainer::encoded(message);
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string changed = bytes;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      PageMessageReader reader(all_limits());
      reader.add(changed);
      bool read = true;
      try {
        read = reader.next().has_value();
      } catch (const Error&) {
        read = false;
      }
      ASSERT_FALSE(read) << message.index() << " bit " << bit;
    }
  }
}

TEST(PageMessage, RefusesWhatIsTooLongOrNotExpected) {
  const auto error = [](std::string bytes, const trainer::PageMessageLimits& limits) {
    return message_of([&] {
      PageMessageReader reader(limits);
      reader.add(bytes);
      reader.next();
    });
  };
  const trainer::PageMessageLimits limits = trainer::limits_of_pages(4, 32);
  // A length is refused before its bytes have come.
  std::string page = trainer::encoded(examples()[3]);
  EXPECT_EQ(error(page, limits), "no error");
  const std::uint64_t huge = std::uint64_t{1} << 60;
  std::memcpy(page.data() + 8, &huge, sizeof huge);
  EXPECT_THAT(error(page.substr(0, 16), limits),
              HasSubstr("must have at most 88 bytes; found 1152921504606846976"));
  EXPECT_THAT(
      error(trainer::encoded(trainer::PageData{7, 1, {}, {5, 6, 7, 8}, std::vector<std::byte>(33)}), limits),
      HasSubstr("must have at most 88 bytes; found 89"));
  EXPECT_THAT(error(trainer::encoded(examples()[1]), limits),
              HasSubstr("must be of a type that is expected here"));
  EXPECT_THAT(error("GET / HTTP/1.1\r\n\r\n", limits), HasSubstr("must begin with KVP1"));
}

TEST(KVIdentity, SaysWhatDiffers) {
  const auto difference = [](auto change) {
    KVIdentity other = kIdentity;
    change(other);
    const trainer::KVDifference found = difference_of(kIdentity, other);
    EXPECT_EQ(found.rule.empty(), chain_root(kIdentity) == chain_root(other));
    return found.rule + "; found " + found.found;
  };
  EXPECT_EQ(difference([](KVIdentity&) {}), "; found ");
  EXPECT_EQ(difference([](KVIdentity& other) { other.arithmetic = "vulkan"; }), "; found ");
  EXPECT_EQ(difference([](KVIdentity& other) { other.weights = "w"; }),
            "must have the same parameters, of hash weights; found w");
  EXPECT_THAT(difference([](KVIdentity& other) { other.model = "m"; }),
              HasSubstr("must serve the same model"));
  EXPECT_EQ(difference([](KVIdentity& other) { other.dtype = "bf16"; }), "must compute in f32; found bf16");
  EXPECT_EQ(difference([](KVIdentity& other) { other.page_size = 8; }),
            "must have pages of 4 tokens (--page-size); found 8");
  EXPECT_EQ(difference([](KVIdentity& other) { other.caches += "values i8(4, 2, 8)\n"; }),
            "must keep what this side keeps in its caches, none; found values i8(4, 2, 8)");
}

TEST(KVIdentity, AChainKnowsAllThatStandsInFront) {
  const std::vector<std::int32_t> a{1, 2, 3, 4}, b{1, 2, 3, 5};
  const trainer::ChainHash root = chain_root(kIdentity), first = chain_hash(root, a);
  EXPECT_EQ(chain_hash(root, a), first);
  EXPECT_NE(chain_hash(root, b), first);
  EXPECT_NE(chain_hash(first, a), first);
  EXPECT_NE(chain_hash(chain_hash(root, b), a), chain_hash(first, a));
}

}  // namespace
}  // namespace meshloom::tests
