// The rules that ship with the program: each profile gets one, each recipe is edited by it, and neither needs the other's
// name.
#include "trainer/rules/hardware_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"

namespace meshloom::trainer {
namespace {

using testing::HasSubstr;
using tests::message_of;

class HardwareRules : public testing::Test {
 protected:
  HardwareRules() {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
  }
  Resolution on(TrainerConfig& config, const std::string& selector, std::vector<std::string> fixed = {}) {
    return resolve(config, {.selector = selector, .fixed = std::move(fixed)}, registry_, classes_);
  }
  std::string error_of(const std::string& text) {
    return message_of([&] { parse_hardware_rules({{"new.rule", text}}, classes_); });
  }

  hal::Registry registry_;
  kernels::Catalog catalog_;
  layers::ClassTable classes_ = recipe_classes();
};

// So a new profile or a new recipe is one file, and the number of lines is linear in the devices.
TEST_F(HardwareRules, EditEveryRecipeOnEveryProfile) {
  for (const hal::Profile& profile : hal::shipped_profiles())
    for (const Recipe& recipe : recipes()) {
      TrainerConfig config = recipe.make();
      const Resolution resolution = on(config, "null-" + profile.name + "-1");
      EXPECT_NE(resolution.hardware_rule, "") << profile.name;
      EXPECT_TRUE(config.fit) << profile.name;
      EXPECT_NO_THROW(config.check());
      // The host stays with f32, see host.rule.
      if (profile.kind == hal::ProfileKind::host)
        EXPECT_EQ(config.dtype, "f32");
      else
        EXPECT_NE(config.dtype, "f32") << recipe.name << " on " << profile.name;
    }
}

TEST_F(HardwareRules, KnowNoRecipeAndNoListOfAllProfiles) {
  const std::vector<HardwareRule> rules = shipped_hardware_rules(classes_);
  int named = 0;
  for (const HardwareRule& rule : rules) {
    const std::string text = layers::print(rule.config);
    for (const Recipe& recipe : recipes()) EXPECT_EQ(text.find(recipe.name), std::string::npos) << rule.name;
    named += rule.config.profile != "*";
  }
  EXPECT_LE(named, static_cast<int>(hal::shipped_profiles().size()));
  // A chip that nobody has named gets the rule of its kind.
  hal::Profile chip = hal::find_profile("h100");
  chip.name = "a-new-chip";
  EXPECT_EQ(find_hardware_rule(rules, facts_of(chip))->name, "gpu");
}

TEST_F(HardwareRules, AreTheSameForAProfileOnAnyBackend) {
  for (const char* profile : {"rx7900xtx", "h100", "tpu-v5e", "trn2"}) {
    TrainerConfig planned = tiny(), running = tiny();
    const Resolution a = on(planned, std::string("null-as-") + profile + "-1");
    const Resolution b = on(running, std::string("cpu-as-") + profile + "-1");
    EXPECT_EQ(a.hardware_rule, b.hardware_rule);
    EXPECT_EQ(planned.dtype, running.dtype);
  }
}

// The driver decides, not the datasheet.
TEST_F(HardwareRules, FollowTheMatrixUnitThatADriverOffers) {
  hal::DeviceInfo device;
  device.profile.kind = hal::ProfileKind::gpu;
  device.profile.name = "some-gpu";
  const std::vector<HardwareRule> rules = shipped_hardware_rules(classes_);
  const auto dtype = [&] {
    TrainerConfig config = tiny();
    const HardwareRule rule = find_hardware_rule(rules, facts_of(device)).value();
    for (const auto& modifier : rule.config.modifiers) modifier->apply(config, classes_);
    return config.dtype;
  };
  EXPECT_EQ(facts_of(device).matrix, "none");
  EXPECT_EQ(dtype(), "bf16");
  device.limits.matrix_shapes = {{16, 16, 16, hal::DType::f16, hal::DType::f32}};
  EXPECT_EQ(dtype(), "f16");
  device.limits.matrix_shapes.push_back({16, 16, 16, hal::DType::bf16, hal::DType::f32});
  EXPECT_EQ(dtype(), "bf16");
}

TEST_F(HardwareRules, LeaveAloneWhatWasChosen) {
  TrainerConfig config = tiny();
  config.dtype = "f16";
  on(config, "null-h100-1");
  EXPECT_EQ(config.dtype, "f16") << "the recipe's choice";

  config = tiny();
  const Resolution given = on(config, "null-h100-1", {"dtype"});
  EXPECT_EQ(config.dtype, "f32") << "the user's choice";
  ASSERT_EQ(given.notes.size(), 1u);
  EXPECT_EQ(given.notes[0], "hardware rule 'gpu': dtype stays \"f32\", as it was given");

  config = tiny();
  config.hardware_rules = false;
  EXPECT_EQ(on(config, "null-h100-1").hardware_rule, "");
  EXPECT_EQ(config.dtype, "f32");
  EXPECT_FALSE(config.fit);

  config = tiny();
  layers::set(config, "mesh_rules", "[MeshRule{pattern=\".*\" modifiers=[SetAccumulation{accumulation=2}]}]",
              classes_);
  EXPECT_EQ(on(config, "null-h100-1").hardware_rule, "") << "the recipe's own rule comes first";
  EXPECT_EQ(config.dtype, "f32");
}

TEST_F(HardwareRules, AreSaid) {
  TrainerConfig config = tiny();
  const Resolution resolution = on(config, "null-h100-1");
  ASSERT_EQ(resolution.notes.size(), 1u);
  EXPECT_EQ(
      resolution.notes[0],
      "hardware rule 'gpu' sets dtype = \"bf16\"; --set hardware_rules=false leaves the recipe as it is");
  // What is resolved stays so.
  const TrainerConfig before = config;
  EXPECT_TRUE(resolve(config, {}, registry_, classes_).notes.empty());
  EXPECT_EQ(layers::diff(before, config), "");
}

TEST_F(HardwareRules, AreCleanForEveryRecipe) {
  for (const Recipe& recipe : recipes()) {
    EXPECT_THAT(lint_hardware_rules(recipe.make(), registry_, catalog_, classes_), testing::IsEmpty())
        << recipe.name;
    EXPECT_THAT(lint_mesh_rules(recipe.make(), registry_.backends(), "cpu-host-cpu-1", classes_),
                testing::IsEmpty())
        << recipe.name;
  }
}

TEST_F(HardwareRules, NameTheFileAndLineOfWhatIsWrong) {
  EXPECT_THAT(error_of("HardwareRule {\n  kind = gpu\n  dtyp = bf16\n}"), HasSubstr("new.rule:3"));
  EXPECT_THAT(error_of("HardwareRule {\n  kind = toaster\n}"), HasSubstr("toaster"));
  EXPECT_THAT(error_of("HardwareRule {\n  modifiers = [SetDTyp { }]\n}"), HasSubstr("new.rule:2"));
  EXPECT_THAT(error_of("HardwareRule {\n  profile = \"h1000\"\n}"),
              HasSubstr("new.rule, profile: must match a profile"));
  EXPECT_THAT(error_of("SetDType { dtype = bf16 }"), HasSubstr("new.rule: must hold a HardwareRule"));
  const std::vector<HardwareRule> both = parse_hardware_rules(
      {{"a.rule", "HardwareRule { kind = gpu }"}, {"b.rule", "HardwareRule { kind = gpu }"}}, classes_);
  EXPECT_THAT(message_of([&] { find_hardware_rule(both, facts_of(hal::find_profile("h100"))); }),
              HasSubstr("hardware rules 'a' and 'b'"));
  EXPECT_FALSE(find_hardware_rule(both, facts_of(hal::find_profile("trn2"))));
}

}  // namespace
}  // namespace meshloom::trainer
