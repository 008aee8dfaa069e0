// The networks that ship with the program, and what is refused in one.
#include "hal/transport/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hal/error.h"
#include "hal/profile.h"
#include "tests/message_of.h"

namespace meshloom::hal {
namespace {

using testing::HasSubstr;
using tests::message_of;

TEST(Network, ShippedOnesHaveSourcesAndBelongToProfiles) {
  ASSERT_GE(shipped_networks().size(), 11U);
  for (const Network& network : shipped_networks()) {
    EXPECT_FALSE(network.about.empty()) << network.name;
    EXPECT_EQ(network.levels.back().ranks, 0) << network.name;
    for (const NetworkLevel& level : network.levels)
      EXPECT_EQ(level.sources.size(), 3U) << network.name << " " << level.name;
    for (const std::string& profile : network.profiles) {
      EXPECT_NO_THROW(find_profile(profile)) << network.name;
      EXPECT_EQ(network_of_profile(profile).name, network.name);
    }
  }
  EXPECT_EQ(network_of_profile("rx7900xtx").name, "ethernet-10g");
}

TEST(Network, TheInnermostLevelThatJoinsTwoDevicesIsCrossed) {
  const Network& network = find_network("h100-8");
  EXPECT_EQ(network.level_between(0, 7), 0U);
  EXPECT_EQ(network.level_between(7, 8), 1U);
  EXPECT_EQ(network.level_between(1023, 1016), 0U);
  const NetworkLevel& level = network.levels[1];
  EXPECT_DOUBLE_EQ(level.seconds(3, 1000000), level.alpha + 2 * level.message + 1e6 / level.bytes_per_second);
  EXPECT_EQ(level.seconds(0, 0), 0);
}

TEST(Network, WhatIsWrongIsNamed) {
  const std::string number = R"({"value": 1, "source": "s"})";
  const auto text = [&](const std::string& ranks, const std::string& bandwidth) {
    return R"({"name": "n", "about": "a", "profiles": [], "levels": [{"name": "l", "ranks": )" + ranks +
           R"(, "alpha_seconds": )" + number + R"(, "message_seconds": )" + number +
           R"(, "bytes_per_second": )" + bandwidth + "}]}";
  };
  const auto error = [](const std::string& json) { return message_of([&] { parse_network(json, "net"); }); };
  EXPECT_EQ(error(text("0", number)), "no error");
  for (const char* value : {"0", "-5"})
    EXPECT_THAT(error(text("0", std::string(R"({"value": )") + value + R"(, "source": "s"})")),
                HasSubstr("field 'bytes_per_second': must be a number above 0"));
  EXPECT_THAT(error(text("0", "5")), HasSubstr("must be {\"value\": number, \"source\": text}"));
  EXPECT_THAT(error(text("8", number)), HasSubstr("must be 0, which is all, of the last level"));
  EXPECT_THAT(error("{"), HasSubstr("must be JSON"));
  EXPECT_THAT(error(R"({"name": "n", "about": "a", "profiles": []})"),
              HasSubstr("field 'levels': must be given"));
  EXPECT_THAT(error(R"({"name": "n", "about": "a", "profiles": [], "levels": [], "more": 1})"),
              HasSubstr("'more'"));
  EXPECT_THAT(message_of([] { find_network("h100"); }), HasSubstr("h100-8"));
}

}  // namespace
}  // namespace meshloom::hal
