// Measures the cost of a feature: the lines that must change in existing files to have M variants of it in N
// models. The models (hosts) are recipes on disk. Adding a feature means writing one line of text, the
// snippet, into a new file; then every host is read from disk, edited by the snippet, compared with the same
// tree built by hand, composed and trained for a step. The files are read again and their changed lines
// counted. The small grid always runs; MESHLOOM_COMPLEXITY_FULL=1 runs N up to 32 and M up to 8 and prints
// the table.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <span>

#include "layers/config/tree.h"
#include "tests/complexity/control.h"
#include "tests/complexity/features.h"
#include "tests/complexity/measure.h"
#include "trainer/compose/compose.h"
#include "trainer/config/modifier.h"
#include "trainer/execute/session.h"
#include "trainer/inference/model_runner.h"
#include "trainer/rules/apply.h"
#include "trainer/rules/resolve.h"

namespace meshloom::tests {
namespace {

bool full() { return std::getenv("MESHLOOM_COMPLEXITY_FULL") != nullptr; }
std::vector<int> host_counts() {
  return full() ? std::vector<int>{1, 2, 4, 8, 16, 32} : std::vector<int>{1, 2, 4};
}
std::vector<int> variant_counts() { return full() ? std::vector<int>{1, 2, 4, 8} : std::vector<int>{1, 2}; }

// A directory that is gone when the test is.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "meshloom-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Complexity : public testing::Test {
 protected:
  Complexity() {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    add_feature_kernels(catalog_);
    add_feature_backends(registry_);
    add_host_classes(classes_);
    add_feature_classes(classes_);
  }

  // The sum of losses and the norm of the gradient in the first step, and the sum of losses in the second.
  std::vector<float> step(trainer::TrainerConfig config) {
    if (config.device.empty()) config.device = "cpu";
    const auto device = trainer::open_device(config, registry_);
    trainer::ComposeOptions options = config.compose_options();
    trainer::Session session(
        *device, catalog_,
        trainer::compose_training(*config.model, *config.learner, options, catalog_, device->info()));
    trainer::initialize(session, 1);
    std::mt19937 random(3);
    std::vector<std::int32_t> tokens(8), targets(8);
    for (std::size_t i = 0; i < 8; ++i) {
      tokens[i] = static_cast<std::int32_t>(random() % 13);
      targets[i] = static_cast<std::int32_t>(random() % 13);
    }
    const float rate = 1e-2f;
    session.write("tokens", std::as_bytes(std::span(tokens)));
    session.write("targets", std::as_bytes(std::span(targets)));
    session.write("lr", std::as_bytes(std::span(&rate, 1)));
    std::vector<float> seen;
    for (int i = 0; i < 2; ++i) {
      session.run(trainer::Step::train);
      std::vector<float> metrics(
          static_cast<std::size_t>(session.plan().persistent_types.at("metrics").elements()));
      session.read("metrics", std::as_writable_bytes(std::span(metrics)));
      seen.insert(seen.end(), {metrics[0], metrics[2]});
    }
    return seen;
  }

  // The logits of a text's last token, after two steps beside its cache, and the bytes that the cache takes.
  std::vector<float> decode(const trainer::TrainerConfig& config) {
    const auto device = registry_.open("cpu");
    trainer::ModelRunner runner(
        config, {.length = 4, .rows = 1, .tokens = {2}, .page_size = 2, .pages = 2, .batch_invariant = false},
        *device, catalog_, [](trainer::Session& session) { trainer::initialize(session, 1); });
    trainer::Sequence text;
    text.tokens = {3, 1, 7, 5};
    text.prompt = text.size();
    text.pages = {1, 0};
    std::vector<float> seen;
    for (const std::int64_t rows : {0, 1}) {
      const trainer::Chunk chunk{&text, 2, rows};
      const std::span<const float> logits = runner.run({&chunk, 1});
      seen.assign(logits.begin(), logits.end());
      text.computed += 2;
    }
    const layers::CacheBytes& bytes = runner.plan().cache_bytes;
    seen.insert(seen.end(), {static_cast<float>(bytes.page), static_cast<float>(bytes.sequence)});
    return seen;
  }

  // Reads a host and a snippet from disk and puts them together.
  trainer::TrainerConfig edited(const std::string& folder, int index, const std::string& snippet) {
    trainer::TrainerConfig config =
        trainer::parse_recipe(read(folder + "/" + host_file(index)), classes_, host_file(index));
    trainer::Chain chain;
    layers::set(chain, "modifiers", "[" + read(folder + "/" + snippet) + "]", classes_);
    const trainer::Applied applied = trainer::apply_modifiers(config, chain.modifiers, snippet, classes_);
    EXPECT_TRUE(applied.no_ops.empty()) << applied.no_ops.front();
    return config;
  }

  // Runs every variant in every host and compares each with the tree built by hand.
  void expect_works(const Feature& feature, const std::string& folder, int index, int variant) {
    const std::string name = fmt::format("{} {} in host {}", feature.name, variant, index);
    SCOPED_TRACE(name);
    const trainer::TrainerConfig config = edited(folder, index, fmt::format("variant_{}.modifier", variant));
    Parts parts;
    const FeatureVariant& wanted = feature.variants[static_cast<std::size_t>(variant)];
    wanted.parts(parts);
    trainer::TrainerConfig direct = host(index, parts);
    wanted.recipe(direct);
    EXPECT_EQ(layers::diff(direct, config), "");
    EXPECT_NE(layers::diff(host(index), config), "");
    const auto run = [&](const trainer::TrainerConfig& c) { return feature.inference ? decode(c) : step(c); };
    const std::vector<float> seen = run(config);
    EXPECT_EQ(seen, run(direct));
    for (float x : seen) EXPECT_TRUE(std::isfinite(x));
    const std::vector<float> plain = run(host(index));
    if (feature.same_numbers) {
      for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], plain[i], 1e-3 * std::abs(plain[i]));
    } else {
      EXPECT_NE(seen, plain);  // the feature is really there
    }
  }

  // One cell: N hosts on disk, M snippets beside them, everything run, lines counted.
  Cell measure(const Feature& feature, int hosts, int variants, int first_new_host, int first_new_variant) {
    const Folder folder;
    for (int i = 0; i < hosts; ++i)
      std::ofstream(folder.path() + "/" + host_file(i)) << trainer::print_recipe(host(i));
    const Files before = read_files(folder.path());
    for (int v = 0; v < variants; ++v)
      std::ofstream(folder.path() + "/" + fmt::format("variant_{}.modifier", v))
          << feature.variants[static_cast<std::size_t>(v)].snippet << "\n";
    for (int i = 0; i < hosts; ++i)
      for (int v = 0; v < variants; ++v)  // pairs of smaller cells have been run
        if (i >= first_new_host || v >= first_new_variant) expect_works(feature, folder.path(), i, v);
    return {hosts, variants, changed_lines(before, read_files(folder.path()))};
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
  layers::ClassTable classes_ = trainer::recipe_classes();
};

void print_row(const std::string& name, const std::vector<Cell>& cells) {
  const Exponents e = fit(cells);
  int highest = 0;
  for (const Cell& cell : cells) highest = std::max(highest, cell.lines);
  fmt::print("| {:<16} | {:>5} | {:>5.2f} | {:>5.2f} |\n", name, highest, e.hosts, e.variants);
}

TEST_F(Complexity, FeaturesChangeNoLineOfAnyHost) {
  if (full()) fmt::print("| feature          | lines | a (N) | b (M) |\n|---|---|---|---|\n");
  for (const Feature& feature : features()) {
    ASSERT_EQ(feature.variants.size(), static_cast<std::size_t>(kVariants)) << feature.name;
    std::vector<Cell> cells;
    int hosts_done = 0;
    for (const int hosts : host_counts()) {
      int variants_done = 0;
      for (const int variants : variant_counts()) {
        cells.push_back(measure(feature, hosts, variants, hosts_done, variants_done));
        variants_done = variants;
        EXPECT_EQ(cells.back().lines, 0) << feature.name << " N=" << hosts << " M=" << variants;
      }
      hosts_done = hosts;
    }
    EXPECT_LT(fit(cells).hosts, 0.05);
    EXPECT_LT(fit(cells).variants, 0.05);
    if (full()) print_row(feature.name, cells);
    if (HasFailure() && !full()) return;
  }
}

// Without the feature's line the host is what it was: the comparison sees a snippet that is not applied.
TEST_F(Complexity, TheHostsDiffer) {
  std::set<std::string> trees, losses;
  for (int i = 0; i < kHosts; ++i) {
    std::string fields;
    for (const auto& [path, value] : layers::flatten(host(i))) fields += path + "\n";
    trees.insert(fields);
    trainer::TrainerConfig again =
        trainer::parse_recipe(trainer::print_recipe(host(i)), classes_, host_file(i));
    EXPECT_EQ(layers::diff(host(i), again), "");
  }
  EXPECT_EQ(trees.size(), static_cast<std::size_t>(kHosts));
}

// The same measure, on models that grow by subclassing, must read N times M.
TEST(ComplexityControl, SubclassesGrowWithHostsTimesVariants) {
  std::vector<Cell> cells;
  for (const int hosts : host_counts())
    for (const int variants : variant_counts()) {
      const Folder folder;
      for (int i = 0; i < hosts; ++i) write_control_host(folder.path(), i);
      const Files before = read_files(folder.path());
      for (int i = 0; i < hosts; ++i)
        for (int v = 0; v < variants; ++v) {
          EXPECT_THROW(run_control(folder.path(), i, v), std::runtime_error);  // no edit, no feature
          integrate_control(folder.path(), i, v);
          EXPECT_EQ(run_control(folder.path(), i, v), expected_control(i, v));
          EXPECT_EQ(run_control(folder.path(), i, -1), expected_control(i, -1));
        }
      cells.push_back({hosts, variants, changed_lines(before, read_files(folder.path()))});
      EXPECT_EQ(cells.back().lines, 4 * hosts * variants);
    }
  EXPECT_GT(fit(cells).hosts, 0.9);
  EXPECT_GT(fit(cells).variants, 0.9);
  if (full()) print_row("(subclassing)", cells);
}

// A snippet that is wrong in the ways that a count of 0 would hide.
TEST_F(Complexity, ASnippetThatDoesNothingIsAnError) {
  const Folder folder;
  std::ofstream(folder.path() + "/" + host_file(0)) << trainer::print_recipe(host(0));
  for (const char* text :
       {"Replace{class=Rotary with=\"RotaryPosition{}\"}", "Adapt{where=\"**.query\" with=Lora{}}",
        "Replace{class=RMSNorm with=\"LayerNorm{epsilon=1}\"}"}) {
    std::ofstream(folder.path() + "/bad.modifier") << text;
    EXPECT_THROW(edited(folder.path(), 0, "bad.modifier"), hal::Error) << text;
  }
}

TEST(Measure, CountsLines) {
  const Files before{{"a", {"1", "2", "3"}}, {"b", {"x"}}};
  EXPECT_EQ(changed_lines(before, before), 0);
  EXPECT_EQ(changed_lines(before, {{"a", {"1", "2", "3"}}, {"b", {"x"}}, {"new", {"y", "z"}}}), 0);
  EXPECT_EQ(changed_lines(before, {{"a", {"1", "two", "3"}}, {"b", {"x"}}}), 2);
  EXPECT_EQ(changed_lines(before, {{"a", {"0", "1", "2", "3", "4"}}, {"b", {"x"}}}), 2);
  EXPECT_EQ(changed_lines(before, {{"a", {"1", "2", "3"}}}), 1);
  std::vector<Cell> cells;
  for (int n : {1, 2, 4, 8})
    for (int m : {1, 2, 4}) cells.push_back({n, m, 1000 * n * n});
  EXPECT_NEAR(fit(cells).hosts, 2, 1e-3);
  EXPECT_NEAR(fit(cells).variants, 0, 1e-3);
}

}  // namespace
}  // namespace meshloom::tests
