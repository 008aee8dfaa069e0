// A null device is the device that it stands for: the plans are equal, in variants, parameters and bytes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hal/driver.h"
#include "kernels/core/contract.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/passes/roofline.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::Plan;

constexpr const char* kProfiles[] = {"h100",     "rtx4090", "rtx3060", "rx7900xtx", "rx6800xt",
                                     "arc-b580", "tpu-v5e", "trn2",    "host-cpu"};

// A description as a file, which is removed again.
class DescriptionFile {
 public:
  explicit DescriptionFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("meshloom-{}-{}.json", ::getpid(), count_++)) {
    std::ofstream(path_) << text;
  }
  ~DescriptionFile() { std::filesystem::remove(path_); }
  std::string id() const { return "null:" + path_.string(); }

 private:
  static inline int count_ = 0;
  std::filesystem::path path_;
};

Plan plan_of(const trainer::Recipe& recipe, const std::string& dtype, const hal::DeviceInfo& device) {
  trainer::TrainerConfig config = recipe.make();
  config.dtype = dtype;
  // The layers are alike, and their number changes no choice.
  config.batch = std::min<std::int64_t>(config.batch, 2);
  trainer::ComposeOptions options = config.compose_options();
  options.enforce_memory = false;
  return compose_training(*config.model, *config.learner, options, catalog(), device);
}

// All that a plan has decided, but the names of the device. Plans that cannot be made say why.
std::string decisions(const trainer::Recipe& recipe, const std::string& dtype, const hal::Device& device) {
  std::string text;
  try {
    const Plan plan = plan_of(recipe, dtype, device.info());
    text = fmt::format("peak {}\n", plan.peak_bytes);
    for (const trainer::Block& block : plan.blocks) text += fmt::format("{} {}\n", block.label, block.bytes);
    for (const auto& [step, planned] : plan.steps.programs)
      for (const kernels::Call& call : planned.program.calls) {
        text += fmt::format("{} {} {}", call.op, call.choice->variant->name, call.choice->workspace_bytes);
        for (const auto& [name, value] : call.choice->params) text += fmt::format(" {}={}", name, value);
        text += "\n";
      }
    for (const trainer::Refusal& refusal : plan.refusals)
      text += fmt::format("{} not {}: {}\n", refusal.op, refusal.variant, refusal.reason);
  } catch (const Error& error) {
    text = error.rule() + error.found();
    const std::string id = device.info().id;
    for (std::size_t at; (at = text.find(id)) != std::string::npos;) text.replace(at, id.size(), "it");
  }
  return text;
}

// The first lines that differ: whole plans are too long to print.
std::string difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string x, y;
  while (std::getline(left, x) && std::getline(right, y))
    if (x != y) return "'" + x + "' and '" + y + "'";
  return a == b ? "" : "one is longer";
}

class NullAs : public testing::TestWithParam<std::string> {};

TEST_P(NullAs, PlansAsTheDeviceThatItDescribes) {
  const auto device = build().registry.open(GetParam());
  const DescriptionFile file(hal::describe_device(device->info()));
  for (const char* profile : kProfiles) {
    const auto real = build().registry.open(GetParam(), profile);
    const auto null = build().registry.open(file.id(), profile);
    EXPECT_FALSE(null->info().computes);
    for (const trainer::Recipe& recipe : trainer::recipes())
      for (const char* dtype : {"f32", "bf16"}) {
        if (recipe.for_mesh) continue;
        EXPECT_EQ(difference(decisions(recipe, dtype, *real), decisions(recipe, dtype, *null)), "")
            << GetParam() << " as " << profile << ", " << recipe.name << " in " << dtype;
      }
  }
}

// What the comparison is worth: a description that says something else plans something else.
TEST_P(NullAs, PlansDifferWhereTheDescriptionDoes) {
  const auto device = build().registry.open(GetParam());
  const trainer::Recipe& recipe = trainer::find_recipe("tiny");
  const auto real = build().registry.open(GetParam(), "h100");
  for (const char* limit : {"max_local_bytes", "max_workgroup", "offset_alignment"}) {
    nlohmann::json json = nlohmann::json::parse(hal::describe_device(device->info()));
    json["limits"][limit]["value"] = std::string(limit) == "offset_alignment" ? 65536 : 1;
    const DescriptionFile file(json.dump());
    const auto null = build().registry.open(file.id(), "h100");
    // The kernels of the processor have no workgroups.
    const bool matters = GetParam() != "cpu" || std::string(limit) == "offset_alignment";
    if (!matters) continue;
    EXPECT_NE(difference(decisions(recipe, "f32", *real), decisions(recipe, "f32", *null)), "")
        << GetParam() << ", " << limit;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, NullAs, testing::ValuesIn(computing_devices()),
                         [](const auto& info) { return plain_name(info.param); });

// The drivers of the processor are described in hal/drivers/ as well. Their limits depend on the version and the processor.
TEST(NullDevice, TheShippedDriversOfTheProcessorAreTheDriversHere) {
  int compared = 0;
  for (const auto& [id, name] : {std::pair{"vulkan:0", "lavapipe"}, {"opencl:0", "pocl"}}) {
    const hal::Driver* driver = hal::find_driver(name);
    ASSERT_NE(driver, nullptr) << name;
    std::unique_ptr<hal::Device> device;
    try {
      device = build().registry.open(id, "h100");
    } catch (const Error&) {
      continue;  // no such driver here
    }
    const hal::Limits &here = device->info().limits, &shipped = driver->device.limits;
    if (device->info().driver != driver->device.driver || here.subgroup != shipped.subgroup ||
        here.max_local_bytes != shipped.max_local_bytes)
      continue;
    ++compared;
    const auto null = build().registry.open(std::string("null:") + name, "h100");
    EXPECT_EQ(null->info().features, device->info().features);
    EXPECT_EQ(here.matrix_shapes, shipped.matrix_shapes);
    for (const char* dtype : {"f32", "bf16"})
      EXPECT_EQ(difference(decisions(trainer::find_recipe("smollm2-135m"), dtype, *device),
                           decisions(trainer::find_recipe("smollm2-135m"), dtype, *null)),
                "")
          << id;
  }
  if (compared == 0) GTEST_SKIP() << "none of these versions is here";
}

TEST(NullDevice, StandsForTheBackendThatIsNamed) {
  const auto info = [](const std::string& id, const std::string& profile) {
    return build().registry.open(id, profile)->info();
  };
#ifdef MESHLOOM_HAS_VULKAN
  EXPECT_EQ(info("null", "h100").backend, "vulkan");
  EXPECT_EQ(info("null", "tpu-v5e").backend, "vulkan");
  EXPECT_EQ(info("null:vulkan", "host-cpu").backend, "vulkan");
  EXPECT_EQ(info("null", "rx7900xtx").limits.matrix_shapes,
            hal::find_driver("vulkan-radv-rdna3")->device.limits.matrix_shapes);
  EXPECT_TRUE(info("null", "rx6800xt").limits.matrix_shapes.empty());
  EXPECT_EQ(info("null", "rtx3060").limits.memory_bytes, hal::find_profile("rtx3060").memory_bytes);
#endif
  EXPECT_EQ(info("null", "host-cpu").backend, "cpu");
  EXPECT_EQ(info("null", "").backend, "cpu");
#ifdef MESHLOOM_HAS_OPENCL
  EXPECT_EQ(info("null:opencl", "rtx3060").backend, "opencl");
  EXPECT_EQ(info("null:opencl", "rtx3060").limits.max_allocation_bytes,
            hal::find_profile("rtx3060").memory_bytes / 4);
  // As what it was made for; another profile has another driver.
  const auto device = build().registry.open("null:opencl", "h100");
  device->run_as(hal::find_profile("arc-b580"));
  EXPECT_EQ(device->info().vendor, "Intel(R) Corporation");
  EXPECT_EQ(device->info().id, "null:opencl");
#endif
  const auto refused = [](const std::string& id) { return message_of([&] { build().registry.open(id); }); };
  EXPECT_THAT(refused("null:vulcan"), HasSubstr("must name a backend or a driver"));
  EXPECT_THAT(refused("null:nothing.json"), HasSubstr("must be a file that can be read"));
  const DescriptionFile broken("{\"name\": 1}");
  EXPECT_THAT(refused(broken.id()), HasSubstr("field 'name': must be a text"));
  EXPECT_THAT(refused("cpu:first"), HasSubstr("must be BACKEND or BACKEND:INDEX"));
}

// A driver that is not here is trusted with its matrix unit, unless its device said otherwise.
TEST(NullDevice, TrustsTheMatrixUnitUnlessASelfTestFailed) {
#ifndef MESHLOOM_HAS_VULKAN
  GTEST_SKIP() << "no kernel with a self-test";
#endif
  const auto variant_of = [](const hal::DeviceInfo& device) {
    const Plan plan = plan_of(trainer::find_recipe("smollm2-135m"), "bf16", device);
    for (const kernels::Call& call : plan.steps.at(trainer::Step::train).program.calls)
      if (call.op == "matmul") return call.choice->variant->name;
    return std::string();
  };
  hal::DeviceInfo device = build().registry.open("null:vulkan", "h100")->info();
  EXPECT_EQ(variant_of(device), "cooperative");
  device.self_test_results["matmul cooperative"] = "off by two";
  EXPECT_NE(variant_of(device), "cooperative");
  device.self_test_results["matmul cooperative"] = "";
  device.computes = true;
  EXPECT_EQ(variant_of(device), "cooperative");
  device.self_test_results.clear();
  EXPECT_NE(variant_of(device), "cooperative") << "a device that is here has to pass";
}

}  // namespace
}  // namespace meshloom::tests
