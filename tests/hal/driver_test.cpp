#include "hal/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "tests/message_of.h"

namespace meshloom::hal {
namespace {

using testing::HasSubstr;

constexpr const char* kDriver = R"({
  "name": "a", "backend": "vulkan", "profiles": ["h100"], "vendor": "v", "driver": "d 1", "api": "Vulkan 1.3",
  "limits": {
    "max_allocation_bytes": {"value": 4096, "source": "s"}, "max_local_bytes": {"value": 1024, "source": "s"},
    "offset_alignment": {"value": 64, "source": "s"}, "max_workgroup": {"value": 256, "source": "s"},
    "subgroup": {"value": 32, "source": "s"}, "max_bindings": {"value": 8, "source": "s"},
    "max_constant_words": {"value": 16, "source": "s"}, "max_groups": {"value": [10, 11, 12], "source": "s"}},
  "features": {"value": ["f16-storage"], "source": "s"},
  "matrix_shapes": {"value": ["16x8x4 f16->f32"], "source": "s"}
})";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kDriver;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Driver, IsParsed) {
  const Driver driver = parse_driver(kDriver, "here");
  EXPECT_EQ(driver.device.limits.max_groups, (std::array<std::int64_t, 3>{10, 11, 12}));
  ASSERT_EQ(driver.device.limits.matrix_shapes.size(), 1u);
  EXPECT_EQ(driver.device.limits.matrix_shapes[0], (MatrixShape{16, 8, 4, DType::f16, DType::f32}));
  const DeviceInfo planned = planned_device(driver, find_profile("h100"));
  EXPECT_FALSE(planned.computes);
  EXPECT_EQ(planned.name, find_profile("h100").product);
  EXPECT_EQ(planned.limits.memory_bytes, find_profile("h100").memory_bytes);
  EXPECT_EQ(planned.limits.max_allocation_bytes, 4096);
}

TEST(Driver, WhatIsWrongIsSaid) {
  const auto refused = [](const std::string& text) {
    return tests::message_of([&] { parse_driver(text, "here"); });
  };
  EXPECT_EQ(refused(kDriver), "no error");
  EXPECT_THAT(refused("{"), HasSubstr("here: must be JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(refused(with("\"vendor\"", "\"vendors\"")), HasSubstr("here, field 'vendor': must be given"));
  EXPECT_THAT(refused(with("\"api\"", "\"is_cpus\": true, \"api\"")),
              HasSubstr("is not a field of a driver, did you mean 'is_cpu'?"));
  EXPECT_THAT(refused(with("\"value\": 4096, \"source\": \"s\"", "\"value\": 4096")),
              HasSubstr("field 'max_allocation_bytes': must be {\"value\": ..., \"source\": text}"));
  EXPECT_THAT(refused(with("4096", "-1")), HasSubstr("whole number in the field's range"));
  EXPECT_THAT(refused(with("256", "4294967296")), HasSubstr("'max_workgroup'"));
  EXPECT_THAT(refused(with("[10, 11, 12]", "[10, 11]")), HasSubstr("must be a list of three numbers"));
  for (const char* shape : {"16x8 f16->f32", "16x8x4f16->f32", "0x8x4 f16->f32", "16x8x4x2 f16->f32", "f16"})
    EXPECT_THAT(refused(with("16x8x4 f16->f32", shape)), HasSubstr("must hold shapes such as"));
  EXPECT_THAT(refused(with("16x8x4 f16->f32", "16x8x4 f17->f32")), HasSubstr("f17"));
}

TEST(Driver, TheShippedOnesDriveWhatTheySay) {
  std::map<std::string, std::map<std::string, std::string>> drivers;  // backend -> profile -> driver
  for (const Driver& driver : shipped_drivers()) {
    EXPECT_EQ(find_driver(driver.name), &driver);
    EXPECT_FALSE(driver.sources.empty());
    for (const std::string& profile : driver.profiles) {
      EXPECT_EQ(find_profile(profile).kind, ProfileKind::gpu) << driver.name;
      EXPECT_TRUE(drivers[driver.device.backend].emplace(profile, driver.name).second)
          << profile << " has two drivers on " << driver.device.backend;
      EXPECT_EQ(&driver_of(driver.device.backend, profile), &driver);
    }
  }
  for (const char* backend : {"vulkan", "opencl", "cpu"}) {
    EXPECT_EQ(driver_of(backend, "tpu-v5e").name, std::string(backend) + "-generic");
  }
  EXPECT_THROW(driver_of("metal", "h100"), Error);
  EXPECT_EQ(find_driver("nothing"), nullptr);
  for (const Profile& profile : shipped_profiles())
    if (profile.kind == ProfileKind::gpu) {
      EXPECT_TRUE(drivers["opencl"].count(profile.name)) << profile.name;
      // AMD has no Vulkan driver for its accelerators.
      EXPECT_EQ(drivers["vulkan"].count(profile.name), profile.name == "mi300x" ? 0u : 1u) << profile.name;
    }
}

TEST(Driver, ADescriptionIsTheDevice) {
  for (const Driver& driver : shipped_drivers()) {
    DeviceInfo device =
        planned_device(driver, find_profile(driver.profiles.empty() ? "host-cpu" : driver.profiles.front()));
    device.id = "some:0";
    device.self_test_results["matmul cooperative"] = "off by two";
    const Driver described = parse_driver(describe_device(device), "here");
    const DeviceInfo again = planned_device(described, described.device.profile);
    EXPECT_EQ(described.name, "some:0");
    for (const auto member : {&DeviceInfo::backend, &DeviceInfo::name, &DeviceInfo::vendor,
                              &DeviceInfo::driver, &DeviceInfo::api})
      EXPECT_EQ(again.*member, device.*member) << driver.name;
    EXPECT_EQ(again.is_cpu, device.is_cpu);
    EXPECT_EQ(again.timestamps, device.timestamps);
    EXPECT_EQ(again.features, device.features);
    EXPECT_EQ(again.self_test_results, device.self_test_results);
    EXPECT_EQ(to_json(again.profile), to_json(device.profile));
    const Limits &a = again.limits, &b = device.limits;
    EXPECT_EQ(a.memory_bytes, b.memory_bytes);
    EXPECT_EQ(a.max_allocation_bytes, b.max_allocation_bytes);
    EXPECT_EQ(a.max_local_bytes, b.max_local_bytes);
    EXPECT_EQ(a.max_workgroup, b.max_workgroup);
    EXPECT_EQ(a.max_groups, b.max_groups);
    EXPECT_EQ(a.subgroup, b.subgroup);
    EXPECT_EQ(a.offset_alignment, b.offset_alignment);
    EXPECT_EQ(a.max_bindings, b.max_bindings);
    EXPECT_EQ(a.max_constant_words, b.max_constant_words);
    EXPECT_EQ(a.max_parameter_bytes, b.max_parameter_bytes);
    EXPECT_EQ(a.min_subgroup, b.min_subgroup);
    EXPECT_EQ(a.max_subgroup, b.max_subgroup);
    EXPECT_EQ(a.matrix_shapes, b.matrix_shapes);
  }
}

}  // namespace
}  // namespace meshloom::hal
