#include <gtest/gtest.h>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "layers/config/tree.h"
#include "trainer/config/modifier.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/product.h"
#include "trainer/rules/resolve.h"
#include "trainer/rules/selector.h"

namespace meshloom::trainer {
namespace {

class Rules : public testing::Test {
 protected:
  Rules() {
    kernels::add_contracts(catalog);
    register_backends(registry, catalog);
  }
  TrainerConfig with(const std::string& rules) {
    TrainerConfig config = tiny();
    layers::set(config, "mesh_rules", rules, classes);
    return config;
  }
  Resolution on(TrainerConfig& config, const std::string& selector) {
    return resolve(config, {.selector = selector}, registry, classes);
  }
  hal::Registry registry;
  kernels::Catalog catalog;
  layers::ClassTable classes = recipe_classes();
};

TEST_F(Rules, SelectorsReadBack) {
  for (const char* text : {"vulkan-rx7900xtx-1", "cpu-as-tpu-v5e-8", "cpu-host-cpu-1"})
    EXPECT_EQ(to_string(parse_selector(text, {"cpu", "vulkan"})), text);
  for (const char* text : {"", "cpu", "cpu-1", "cpu-h100", "cpu-h100-0", "cpu-h100-x", "cpu-as-1",
                           "cuda-h100-1", "-h100-1", "cpu-h100-99999999999999999999"})
    EXPECT_THROW(parse_selector(text, {"cpu", "vulkan"}), Error) << text;
}

TEST_F(Rules, TheSelectorAlonePicksBackendAndProfile) {
  TrainerConfig config = tiny();
  const Resolution resolution = on(config, "cpu-as-tpu-v5e-8");
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.profile, "tpu-v5e");
  EXPECT_EQ(config.mesh->size(), 1);
  EXPECT_EQ(resolution.notes.size(), 2u);  // eight devices, one used; what the program's rule sets
  EXPECT_EQ(open_device(config, registry)->profile().name, "tpu-v5e");
}

TEST_F(Rules, HardwareIsDerivedWithoutASelector) {
  TrainerConfig config = tiny();
  EXPECT_EQ(resolve(config, {.device = "cpu"}, registry, classes).hardware, "cpu-host-cpu-1");
  config = tiny();
  EXPECT_EQ(resolve(config, {.device = "cpu", .as = "trn2"}, registry, classes).hardware, "cpu-as-trn2-1");
}

TEST_F(Rules, TheFirstMatchingRuleEditsTheTreeOnce) {
  TrainerConfig config = with(
      "[MeshRule{pattern=\"vulkan-.*\" modifiers=[SetAccumulation{accumulation=4}]},"
      " MeshRule{pattern=\"cpu-as-tpu.*\" modifiers=[Chain{modifiers=[SetKernel{op=matmul variant=naive},"
      " SetAccumulation{accumulation=2}]}]}, MeshRule{pattern=\".*\" modifiers=[SetField{path=seed "
      "value=\"7\"}]}]");
  const Resolution resolution = on(config, "cpu-as-tpu-v5e-1");
  EXPECT_EQ(resolution.rule, 1);
  EXPECT_EQ(resolution.changes.size(), 2u);
  EXPECT_EQ(config.accumulation, 2);
  EXPECT_EQ(config.seed, 0);
  ASSERT_EQ(config.kernels.size(), 1u);
  EXPECT_EQ(config.kernels[0]->variant.get(), "naive");
  // The resolved tree goes through text and stays as it is.
  TrainerConfig again = parse_recipe(print_recipe(config), classes, "text");
  EXPECT_EQ(layers::diff(config, again), "");
  EXPECT_TRUE(resolve(again, {}, registry, classes).notes.empty());
  EXPECT_EQ(layers::diff(config, again), "");
}

TEST_F(Rules, AKernelRuleChangesTheVariantAndNothingElse) {
  TrainerConfig plain = with("[]"),
                ruled = with("[MeshRule{pattern=\".*\" modifiers=[SetKernel{op=matmul variant=naive}]}]");
  plain.hardware_rules = false;
  ruled.hardware_rules = false;
  on(plain, "cpu-host-cpu-1");
  on(ruled, "cpu-host-cpu-1");
  ruled.mesh_rules.clear();
  const std::string diff = layers::diff(plain, ruled);
  EXPECT_NE(diff.find("naive"), std::string::npos);
  for (std::size_t at = 0; at < diff.size(); at = diff.find('\n', at) + 1) {
    EXPECT_EQ(diff.substr(at + 1, 7), "kernels") << diff;
    if (diff.find('\n', at) == std::string::npos) break;
  }
}

TEST_F(Rules, NothingIsSilent) {
  TrainerConfig config = with("[MeshRule{pattern=\".*\" modifiers=[SetAccumulation{accumulation=1}]}]");
  EXPECT_NE(on(config, "cpu-host-cpu-1").notes.at(0).find("changes nothing"), std::string::npos);
  config = with("[MeshRule{pattern=\"cuda-.*\" modifiers=[SetAccumulation{accumulation=2}]}]");
  EXPECT_NE(on(config, "cpu-host-cpu-1").notes.at(0).find("can never match"), std::string::npos);
  config = with(
      "[MeshRule{pattern=\"cpu-.*\" modifiers=[SetAccumulation{accumulation=2}]},"
      " MeshRule{pattern=\"cpu-h100-.*\" modifiers=[SetAccumulation{accumulation=4}]}]");
  EXPECT_NE(on(config, "cpu-host-cpu-1").notes.at(0).find("earlier rule"), std::string::npos);
  config = with("[MeshRule{pattern=\"(\" modifiers=[]}]");
  EXPECT_THROW(on(config, "cpu-host-cpu-1"), Error);
  config = with("[MeshRule{pattern=\".*\" modifiers=[SetField{path=modle value=\"1\"}]}]");
  EXPECT_THROW(on(config, "cpu-host-cpu-1"), Error);
}

TEST_F(Rules, HardwareThatNoRuleMatchesIsSaid) {
  TrainerConfig config =
      with("[MeshRule{pattern=\"vulkan-.*\" modifiers=[SetAccumulation{accumulation=2}]}]");
  const Resolution resolution = on(config, "cpu-host-cpu-1");
  ASSERT_EQ(resolution.notes.size(), 1u);
  EXPECT_NE(resolution.notes[0].find("'cpu-host-cpu-1' matches none of the recipe's 1 mesh rules"),
            std::string::npos)
      << resolution.notes[0];
  config = tiny();
  EXPECT_TRUE(on(config, "cpu-host-cpu-1").notes.empty()) << "no rules, nothing to match";
}

TEST_F(Rules, AProductThatIsNotWhatTheSelectorNamesIsSaid) {
  hal::DeviceInfo device;
  device.id = "vulkan:0", device.backend = "vulkan", device.name = "llvmpipe (LLVM 15)",
  device.driver = "Mesa 22";
  device.is_cpu = true;
  device.profile.name = "host-cpu";
  const std::string other = product_note("vulkan-rx7900xtx-1", device);
  for (const char* part :
       {"'vulkan-rx7900xtx-1' names a product that is not present",
        "vulkan:0, llvmpipe (LLVM 15), driver Mesa 22", "runs on the CPU", "'vulkan-as-rx7900xtx-1'"})
    EXPECT_NE(other.find(part), std::string::npos) << other;
  const std::string as = product_note("vulkan-as-rx7900xtx-1", device);
  EXPECT_NE(as.find("vulkan:0, llvmpipe"), std::string::npos) << "a CPU behind Vulkan, whatever it runs as";
  EXPECT_EQ(as.find("names a product"), std::string::npos) << as;
  device.is_cpu = false;
  device.profile.name = "rx7900xtx";
  EXPECT_EQ(product_note("vulkan-rx7900xtx-1", device), "");
  EXPECT_NE(product_note("vulkan-h100-1", device), "");
  EXPECT_EQ(product_note("vulkan-as-h100-1", device), "");
}

// What opens the device says it.
TEST_F(Rules, OpeningADeviceSaysWhichItIs) {
  TrainerConfig config = tiny();
  on(config, "cpu-h100-1");
  std::string said;
  open_device(config, registry, [&](const std::string& text) { said += text; });
  EXPECT_NE(said.find("'cpu-h100-1' names a product that is not present; the device is cpu, "),
            std::string::npos)
      << said;
}

TEST_F(Rules, RequestsMayNotContradict) {
  TrainerConfig config = tiny();
  EXPECT_THROW(resolve(config, {.selector = "cpu-h100-1", .device = "null"}, registry, classes), Error);
  EXPECT_THROW(resolve(config, {.selector = "cpu-h100-1", .as = "trn2"}, registry, classes), Error);
  EXPECT_THROW(resolve(config, {.device = "cpu", .as = "nothing"}, registry, classes), Error);
}

TEST_F(Rules, EveryRecipeIsWhole) {
  for (const Recipe& recipe : recipes()) {
    const TrainerConfig config = recipe.make();
    EXPECT_NO_THROW(config.check()) << recipe.name;
    EXPECT_EQ(layers::diff(config, parse_recipe(print_recipe(config), classes, recipe.name)), "")
        << recipe.name;
  }
}

}  // namespace
}  // namespace meshloom::trainer
