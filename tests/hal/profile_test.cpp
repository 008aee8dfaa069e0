#include "hal/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hal/error.h"

namespace meshloom::hal {
namespace {

std::string error_of(const std::string& json) {
  try {
    parse_profile(json, "x.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string edited(const std::string& from, const std::string& to) {
  std::string json = to_json(find_profile("trn2"));
  const std::size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return json.replace(at, from.size(), to);
}

TEST(Profile, EveryShippedProfileIsThereAndHasSources) {
  std::vector<std::string> names;
  for (const Profile& profile : shipped_profiles()) {
    names.push_back(profile.name);
    EXPECT_GT(profile.memory_bytes, 0);
    EXPECT_GT(profile.flops(DType::f32), 0);
    EXPECT_GE(profile.sources.size(), 6u) << profile.name;
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"host-cpu", "h100", "b200", "rx7900xtx", "arc-b580", "rtx4090",
                                            "tpu-v5e", "tpu-v5p", "trn2"}));
}

TEST(Profile, RoundTripsThroughText) {
  for (const Profile& profile : shipped_profiles()) {
    const std::string text = to_json(profile);
    EXPECT_EQ(to_json(parse_profile(text, profile.name)), text);
  }
}

TEST(Profile, RefusesWhatIsWrong) {
  EXPECT_THAT(error_of("{"), testing::StartsWith("x.json: must be JSON"));
  EXPECT_THAT(error_of("[]"), testing::HasSubstr("a profile must be a JSON object"));
  EXPECT_THAT(error_of(edited("\"cores\"", "\"coers\"")), testing::HasSubstr("field 'cores': must be given"));
  EXPECT_THAT(error_of(edited("\"product\"", "\"colour\": 1, \"product\"")),
              testing::HasSubstr("field 'colour': is not a field of a profile"));
  EXPECT_THAT(error_of(edited("\"trainium\"", "\"asic\"")),
              testing::HasSubstr("must be host, gpu, tpu or trainium"));
  EXPECT_THAT(error_of(edited("\"value\": 8,", "\"value\": 8.5,")), testing::HasSubstr("must be an integer"));
  EXPECT_THAT(error_of(edited("\"value\": 8,", "\"value\": -8,")), testing::HasSubstr("at least 0"));
  EXPECT_THAT(error_of(edited("\"source\": \"A", "\"origin\": \"A")), testing::HasSubstr("\"source\": text"));
}

TEST(Profile, AnUnknownNameGetsASuggestion) {
  try {
    find_profile("h10");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean 'h100'?"));
  }
}

}  // namespace
}  // namespace meshloom::hal
