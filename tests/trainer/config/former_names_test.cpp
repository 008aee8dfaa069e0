// Names that were replaced by others: what was written with them is read as if it had been written with today's. The files
// in former/ were written by the program before its names changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <utility>

#include "kernels/core/catalog.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "trainer/config/former_names.h"
#include "trainer/config/tree_modifiers.h"
#include "trainer/io/file.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/apply.h"

namespace meshloom::trainer {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using tests::message_of;

std::string with_word_replaced(const std::string& text, std::string_view word, std::string_view by) {
  return std::regex_replace(text, std::regex("\\b" + std::string(word) + "\\b"), std::string(by));
}

bool has_word(const std::string& text, std::string_view word) {
  return std::regex_search(text, std::regex("\\b" + std::string(word) + "\\b"));
}

TEST(FormerNames, HaveOneCurrentName) {
  std::set<std::pair<FormerName::Kind, std::string_view>> seen;
  for (const FormerName& one : former_names()) {
    EXPECT_TRUE(seen.emplace(one.kind, one.old_name).second) << one.old_name << " stands there twice";
    EXPECT_EQ(current_name(one.kind, one.old_name), one.current);
    EXPECT_EQ(current_name(one.kind, one.current), one.current) << "is a former name itself";
  }
  EXPECT_EQ(current_name(FormerName::Kind::config_class, "Linear"), "Linear");
}

TEST(FormerNames, OfClassesAreReadAndNotPrinted) {
  const layers::ClassTable classes = recipe_classes();
  for (const FormerName& one : former_names()) {
    if (one.kind != FormerName::Kind::config_class) continue;
    const std::string old_name(one.old_name), current(one.current);
    EXPECT_THAT(classes.names(), Contains(current));
    EXPECT_THAT(classes.names(), Not(Contains(old_name)));
    const std::string printed = layers::print(*layers::parse(old_name + "{}", classes, "old"));
    EXPECT_EQ(printed, layers::print(*layers::parse(current, classes, "new")));
    EXPECT_FALSE(has_word(printed, old_name)) << printed;
    // A misspelt name may be close to the old one, but only current names are suggested.
    EXPECT_THAT(message_of([&] { layers::parse(old_name + "x{}", classes, "misspelt"); }),
                Not(HasSubstr("'" + old_name + "'")));
  }
}

TEST(FormerNames, OfClassesSelectAndReplaceNodes) {
  const layers::ClassTable classes = recipe_classes();
  TrainerConfig config = tiny();
  EXPECT_EQ(layers::replace(config, "CrossEntropy", "SlicedLoss{rows=8}", classes).size(), 1u);
  EXPECT_EQ(layers::get(config, "model.loss.chunk_size"), "8");
  EXPECT_EQ(layers::select(config, {.of_class = "SlicedLoss"}, classes),
            std::vector<std::string>{"model.loss"});
  EXPECT_EQ(layers::replace(config, "SlicedLoss", "CrossEntropy", classes).size(), 1u);

  Wrap wrap;
  wrap.selection.where = "**.q_proj";
  wrap.slot = "projection";
  wrap.with.reset(layers::parse("NormedProjection", classes, "old"));
  wrap.apply(config, classes);
  Replace replace;
  replace.selection.of_class = "NormedProjection";
  replace.with = std::string("Linear{}");
  replace.apply(config, classes);
  EXPECT_EQ(layers::diff(tiny(), config), "");
}

// The type of a cache's numbers, which is a field of their codec now.
TEST(FormerNames, OfAValueThatIsAChildNow) {
  const layers::ClassTable classes = recipe_classes();
  for (const char* text : {"PagedCache{dtype=f16}", "PagedCache { dtype = \"f16\" }"}) {
    const auto cache = layers::parse(text, classes, "old");
    EXPECT_EQ(layers::get(*cache, "codec.dtype"), "\"f16\"") << text;
  }
  TrainerConfig config = tiny();
  const std::string cache = "model.decoder.stack.layer.attention.cache";
  EXPECT_TRUE(layers::set(config, cache + ".dtype", "bf16", classes));
  EXPECT_EQ(layers::get(config, cache + ".codec.dtype"), "\"bf16\"");
  EXPECT_THROW(layers::set(config, cache + ".dtype", "i32", classes), hal::Error);
  EXPECT_THROW(layers::parse("PagedCache{dtype=7}", classes, "old"), hal::Error);
}

TEST(FormerNames, OfOpsAreReadInKernelRules) {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  for (const FormerName& one : former_names()) {
    if (one.kind != FormerName::Kind::op) continue;
    EXPECT_TRUE(catalog.has(one.current)) << one.current;
    EXPECT_FALSE(catalog.has(one.old_name)) << one.old_name;
    TrainerConfig config = tiny();
    KernelRuleConfig rule;
    rule.op = one.old_name;
    rule.variant = std::string("reference");
    config.kernels = {rule};
    EXPECT_EQ(config.compose_options().kernels.front().op, one.current);
  }
  EXPECT_EQ(current_op_pattern("{take,put}"), "{gather,scatter_add}");
  EXPECT_EQ(current_op_pattern("takes_*"), "takes_*");
}

// The text with today's names of classes and fields.
std::string renamed(std::string text) {
  for (const FormerName& one : former_names())
    if (one.kind == FormerName::Kind::config_class)
      text = with_word_replaced(text, one.old_name, one.current);
  constexpr std::pair<const char*, const char*> kFields[] = {
      {"rows", "chunk_size"},           {"least", "min"},
      {"whole_pairs", "truncate"},      {"rules", "parameter_groups"},
      {"decay", "weight_decay_factor"}, {"learning_rate", "learning_rate_factor"}};
  for (const auto& [before, now] : kFields)
    text = std::regex_replace(text, std::regex(std::string("\\b") + before + " ="), std::string(now) + " =");
  return text;
}

class WrittenBefore : public testing::TestWithParam<const char*> {};

TEST_P(WrittenBefore, IsTheSameTreeInTodaysNames) {
  const layers::ClassTable classes = recipe_classes();
  const std::string path =
      std::string(MESHLOOM_SOURCE_DIR) + "/tests/trainer/config/former/" + GetParam() + ".txt";
  const std::string text = read_file(path, path), text_now = renamed(text);
  ASSERT_NE(text, text_now);
  TrainerConfig before = parse_recipe(text, classes, "before");
  TrainerConfig now = parse_recipe(text_now, classes, "now");
  // Modifiers name classes in strings, which are kept as they were written.
  for (TrainerConfig* config : {&before, &now}) {
    for (const auto& rule : std::exchange(config->mesh_rules, {}))
      apply_modifiers(*config, rule->modifiers, "rule", classes);
  }
  EXPECT_EQ(layers::diff(now, before), "");
  const std::string printed = print_recipe(before);
  EXPECT_EQ(printed, print_recipe(now));
  for (const FormerName& one : former_names()) {
    if (one.kind != FormerName::Kind::config_class) continue;
    EXPECT_FALSE(has_word(printed, one.old_name)) << one.old_name;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, WrittenBefore, testing::Values("checkpoint", "recipe"),
                         [](const auto& info) { return std::string(info.param); });

// So that every class whose name changed is in one of the files.
TEST(FormerNames, OfClassesAreInTheFilesWrittenBefore) {
  const std::string folder = std::string(MESHLOOM_SOURCE_DIR) + "/tests/trainer/config/former/";
  const std::string all =
      read_file(folder + "checkpoint.txt", "checkpoint") + read_file(folder + "recipe.txt", "recipe");
  for (const FormerName& one : former_names()) {
    if (one.kind != FormerName::Kind::config_class) continue;
    EXPECT_TRUE(has_word(all, one.old_name)) << one.old_name;
  }
}

}  // namespace
}  // namespace meshloom::trainer
