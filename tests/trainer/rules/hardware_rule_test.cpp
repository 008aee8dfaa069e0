// The rules that ship with the program: each profile gets one, each recipe is edited by it, and neither needs the other's
// name.
#include "trainer/rules/hardware_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
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
      // What `config RECIPE --selector NAME --diff` shows.
      EXPECT_NE(layers::get(config, "kernels"), layers::get(recipe.make(), "kernels"))
          << recipe.name << " on " << profile.name;
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

// Lines of code that name a device or a recipe where a new one would need another line. `name` stands in quotes there;
// comments and the examples of help texts name what they like.
int lines_naming(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos || line[first] == '#' || line.compare(first, 2, "//") == 0) continue;
    count += line.substr(0, line.find("  //")).find('"' + name + '"') != std::string::npos;
  }
  return count;
}

// Devices x recipes need no product of lines: a device is its profile, and at most a rule beside it; a recipe is nothing at all.
TEST_F(HardwareRules, CostOneFileForADeviceAndNoneForARecipe) {
  const std::filesystem::path root = MESHLOOM_SOURCE_DIR;
  std::string sources, rules;
  std::size_t rule_lines = 0;
  for (const char* room : {"hal", "kernels", "backends", "layers", "trainer"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / room)) {
      const std::string ending = entry.path().extension().string();
      std::string& into = ending == ".rule" ? rules : sources;
      if (ending == ".cpp" || ending == ".h" || ending == ".rule")
        into += tests::read_text(entry.path().string());
    }
  for (const char c : rules) rule_lines += c == '\n';
  for (const hal::Profile& profile : hal::shipped_profiles()) {
    EXPECT_TRUE(std::filesystem::exists(root / "hal/profiles" / (profile.name + ".json")));
    if (profile.kind == hal::ProfileKind::host) continue;  // the program's own device
    EXPECT_EQ(lines_naming(sources, profile.name), 0) << profile.name;
  }
  for (const Recipe& recipe : recipes()) EXPECT_EQ(rules.find(recipe.name), std::string::npos) << recipe.name;
  // So the lines of rules are at most so many per rule, and there are at most as many rules as devices.
  EXPECT_LE(shipped_hardware_rules(classes_).size(), hal::shipped_profiles().size());
  EXPECT_LE(rule_lines, 8 * shipped_hardware_rules(classes_).size());
  // Planted, it is found.
  EXPECT_EQ(lines_naming("x;\n  if (name == \"h100\") fast();\n// \"h100\"\n", "h100"), 1);
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
  EXPECT_EQ(given.notes[0], "hardware rule 'nvidia-node': dtype stays \"f32\", as it was given");

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
  EXPECT_EQ(resolution.notes[0],
            "hardware rule 'nvidia-node' sets dtype = \"bf16\"; --set hardware_rules=false leaves the recipe "
            "as it is");
  // What is resolved stays so.
  const TrainerConfig before = config;
  EXPECT_TRUE(resolve(config, {}, registry_, classes_).notes.empty());
  EXPECT_EQ(layers::diff(before, config), "");
}

TEST_F(HardwareRules, AreCleanForEveryRecipe) {
  for (const Recipe& recipe : recipes()) {
    EXPECT_THAT(lint_hardware_rules(recipe.make(), registry_, catalog_, classes_), testing::IsEmpty())
        << recipe.name;
    EXPECT_THAT(lint_mesh_rules(recipe.make(), registry_.backends(), "cpu-host-cpu-1", catalog_, classes_),
                testing::IsEmpty())
        << recipe.name;
  }
}

TEST_F(HardwareRules, NameTheFileAndLineOfWhatIsWrong) {
  EXPECT_THAT(error_of("HardwareRule {\n  kind = gpu\n  dtyp = bf16\n}"), HasSubstr("new.rule:3"));
  EXPECT_THAT(error_of("HardwareRule {\n  kind = toaster\n}"), HasSubstr("toaster"));
  EXPECT_THAT(error_of("HardwareRule {\n  modifiers = [SetDTyp { }]\n}"), HasSubstr("new.rule:2"));
  EXPECT_THAT(error_of("HardwareRule {\n  profile = \"h1000\"\n}"),
              HasSubstr("new.rule:2, profile: must match a profile"));
  EXPECT_THAT(error_of("SetDType { dtype = bf16 }"), HasSubstr("new.rule: must hold a HardwareRule"));
  const auto lint = [&](const std::string& text) {
    return lint_hardware_rules(parse_hardware_rules({{"new.rule", text}}, classes_), tiny(),
                               registry_.backends(), catalog_, classes_);
  };
  EXPECT_THAT(
      lint("HardwareRule {\n  kind = gpu\n  modifiers = [\n    SetDType { dtype = bf16 },\n"
           "    SetKernel { op = matmul variant = fastest }]\n}"),
      testing::ElementsAre(testing::StartsWith("new.rule:5, modifiers[1] SetKernel: the variant must be "
                                               "one of ")));
  EXPECT_THAT(
      lint("HardwareRule {\n  kind = gpu\n  modifiers = [SetField { path = modle value = \"1\" }]\n}"),
      testing::ElementsAre(testing::StartsWith("new.rule:3, modifiers[0] SetField: must apply; found ")));
  const std::vector<HardwareRule> both = parse_hardware_rules(
      {{"a.rule", "HardwareRule { kind = gpu }"}, {"b.rule", "HardwareRule { kind = gpu }"}}, classes_);
  EXPECT_THAT(message_of([&] { find_hardware_rule(both, facts_of(hal::find_profile("h100"))); }),
              HasSubstr("hardware rules 'a' and 'b'"));
  EXPECT_FALSE(find_hardware_rule(both, facts_of(hal::find_profile("trn2"))));
}

}  // namespace
}  // namespace meshloom::trainer
