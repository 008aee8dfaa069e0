// The table of docs/fitting.md, models x memories: what Fit chooses there. scripts/fit-table writes it anew and runs its entries.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <future>
#include <optional>
#include <regex>
#include <sstream>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "tests/golden_text.h"
#include "tests/trainer/compose/fit_support.h"
#include "trainer/compose/report.h"
#include "trainer/config/modifier.h"
#include "trainer/config/tree_modifiers.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/apply.h"
#include "trainer/rules/fit.h"
#include "trainer/rules/resolve.h"

namespace meshloom::tests {
namespace {

using trainer::TrainerConfig;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

struct Model {
  const char* name;  // in the table
  const char* recipe;
  const char* modify;  // as --modify takes it; "" = all parameters are trained
};
constexpr Model kModels[] = {
    {"gpt2-124m", "gpt2-124m", ""},
    {"smollm2-135m", "smollm2-135m", ""},
    {"llama-1b", "llama-1b", ""},
    {"llama-1b, LoRA", "llama-1b", "Adapt{with=Lora{rank=8}}"},
    {"llama2-7b, LoRA", "llama2-7b", "Adapt{with=Lora{rank=8}}"},
    {"llama2-7b, QLoRA", "llama2-7b", "Quantize{}, Adapt{with=Lora{rank=8}}"},
    {"llama2-7b", "llama2-7b", ""},
};

// A profile of each memory; none has 8 GiB.
struct Memory {
  const char* profile;
  std::int64_t bytes;
};
constexpr Memory kMemories[] = {
    {"rx7900xtx", 24 * kGiB}, {"arc-a770", 16 * kGiB}, {"rtx3060", 12 * kGiB}, {"rtx3060", 8 * kGiB}};

struct Entry {
  const Model* model = nullptr;
  Memory memory;
  TrainerConfig chosen;
  std::string said;
  std::int64_t bytes = 0, tokens = 0;
  double seconds = 0;

  bool fits() const { return bytes <= memory.bytes; }
};

TrainerConfig recipe_of(const Model& model, const layers::ClassTable& classes) {
  TrainerConfig config = trainer::find_recipe(model.recipe).make();
  trainer::Chain chain;
  layers::set(chain, "modifiers", std::string("[") + model.modify + "]", classes);
  apply_modifiers(config, chain.modifiers, "--modify", classes);
  return config;
}

// As `meshloom plan RECIPE --device null --as PROFILE --memory BYTES` composes it, beside a host with 64 GiB.
Entry entry_of(const Model& model, const Memory& memory, const layers::ClassTable& classes) {
  Entry entry{&model, memory, recipe_of(model, classes), {}, 0, 0, 0};
  TrainerConfig& config = entry.chosen;
  config.memory = memory.bytes;
  resolve(config, {.device = "null", .as = memory.profile}, build().registry, classes);
  const auto device = open_device(config, build().registry);
  hal::DeviceInfo info = device->info();
  auto host = std::make_shared<hal::DeviceInfo>(*info.host);
  host->limits.memory_bytes = host->profile.memory_bytes = 64 * kGiB;
  info.host = host;
  entry.said = fit(config, info, catalog(), classes);
  const trainer::Plan plan = training_plan(config, info);
  entry.bytes = plan.peak_bytes;
  entry.tokens = config.batch * config.sequence;
  entry.seconds = plan.update_predicted_seconds();
  return entry;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = [] {
    static const layers::ClassTable classes = trainer::recipe_classes();
    std::vector<std::future<std::vector<Entry>>> parts;
    for (const Model& model : kModels)
      parts.push_back(std::async(std::launch::async, [&model] {
        std::vector<Entry> found;
        for (const Memory& memory : kMemories) found.push_back(entry_of(model, memory, classes));
        return found;
      }));
    std::vector<Entry> list;
    for (auto& part : parts)
      for (Entry& entry : part.get()) list.push_back(std::move(entry));
    return list;
  }();
  return all;
}

// "to fit into 24 GiB: CHOICE; the plan takes ..." or "no choice of ...; the least is BYTES, with CHOICE"
std::string choice_of(const Entry& entry) {
  if (entry.said.empty()) return "the recipe as it is";
  std::smatch match;
  if (std::regex_search(entry.said, match, std::regex("^to fit [^:]*: (.*); the plan takes")))
    return match[1];
  return "does not fit";
}

// Three digits, which rounding of other compilers does not reach.
std::string tokens_per_second(const Entry& entry) {
  const double rate = static_cast<double>(entry.tokens) / entry.seconds;
  const double unit = std::pow(10, std::floor(std::log10(rate)) - 1);
  return fmt::format("{:.0f}", std::round(rate / unit) * unit);
}

std::string table() {
  std::string text =
      "| model | memory | as profile | dtype | what Fit chooses | planned bytes | tokens/s, predicted |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const Entry& entry : entries())
    text += entry.fits() ? fmt::format("| {} | {} GiB | {} | {} | {} | {} | {} |\n", entry.model->name,
                                       entry.memory.bytes / kGiB, entry.memory.profile, entry.chosen.dtype,
                                       choice_of(entry), entry.bytes, tokens_per_second(entry))
                         : fmt::format("| {} | {} GiB | {} | {} | nothing fits; the least is {} | | |\n",
                                       entry.model->name, entry.memory.bytes / kGiB, entry.memory.profile,
                                       entry.chosen.dtype, trainer::readable_bytes(entry.bytes));
  return text;
}

TEST(FitTable, OfThePageIsWhatFitChooses) {
  ::setenv("MESHLOOM_CACHE_DIR", "", 1);  // what was measured on this machine is not of the page
#if !defined(MESHLOOM_HAS_VULKAN) || !defined(MESHLOOM_HAS_OPENCL)
  GTEST_SKIP() << "the kernels of the device null depend on the backends that were built";
#endif
  std::ostringstream read;
  read << std::ifstream(MESHLOOM_SOURCE_DIR "/docs/fitting.md").rdbuf();
  const std::string page = read.str();
  const std::size_t begin = page.find("| model | memory |"), end = page.find("\n\n", begin);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  expect_golden("../docs/fitting.md", page.substr(0, begin) + table() + page.substr(end + 1));
  // What is promised: these need no flag.
  for (const Entry& entry : entries()) {
    const std::string name = entry.model->name;
    const std::int64_t least = name == "llama2-7b, LoRA" ? 16 * kGiB
                               : name == "llama2-7b"     ? 1000 * kGiB
                                                         : 8 * kGiB;
    EXPECT_EQ(entry.fits(), entry.memory.bytes >= least)
        << name << ", " << entry.memory.bytes << ": " << entry.said;
  }
}

// --- runs

// The recipe with a 16th of its widths and tokens and a quarter of its layers and heads.
TrainerConfig scaled_down(const Model& model, const layers::ClassTable& classes) {
  TrainerConfig config = trainer::find_recipe(model.recipe).make();
  for (const auto& [path, value] : layers::flatten(config)) {
    if (!path.starts_with("model.")) continue;
    const std::string field = path.substr(path.rfind('.') + 1);
    const bool is_width = field == "vocab_size" || field == "dim" || field == "hidden_dim";
    const bool is_count = field == "num_layers" || field == "num_heads" || field == "num_kv_heads";
    if ((!is_width && !is_count) || value.empty() || !std::isdigit(static_cast<unsigned char>(value[0])))
      continue;
    const std::int64_t whole = std::stoll(value);
    const std::int64_t parts = is_width                                  ? 16
                               : field == "num_layers" || whole % 4 == 0 ? 4
                               : whole % 3 == 0                          ? 3
                                                                         : 1;
    layers::set(config, path, std::to_string(std::max<std::int64_t>(1, whole / parts)), classes);
  }
  config.sequence /= 16;
  trainer::Chain chain;
  layers::set(chain, "modifiers", std::string("[") + model.modify + "]", classes);
  apply_modifiers(config, chain.modifiers, "--modify", classes);
  config.hardware_rules = false;  // the losses are compared in f32
  return config;
}

// What Fit chose for the whole model, for the small one.
TrainerConfig with_choice(TrainerConfig small, const TrainerConfig& chosen,
                          const layers::ClassTable& classes) {
  small.accumulation = chosen.accumulation;
  small.remat = chosen.remat;
  small.offload_optimizer = chosen.offload_optimizer;
  std::optional<std::int64_t> chunk;
  layers::visit(chosen, [&](const std::string&, const layers::Config& node) {
    if (node.class_name() == "ChunkedLoss") chunk = std::stoll(layers::get(node, "chunk_size"));
  });
  if (!chunk) return small;
  trainer::Wrap wrap;
  wrap.selection.of_class = "TokenLoss";
  wrap.slot = "base";
  layers::set(wrap, "with",
              fmt::format("ChunkedLoss{{chunk_size={}}}", std::max<std::int64_t>(1, *chunk / 16)), classes);
  wrap.apply(small, classes);
  return small;
}

// Runs an entry on a device whose memory is what its plan takes, and the recipe as it is on one without a limit.
void run(const Entry& entry, const std::string& id) {
  static const layers::ClassTable classes = trainer::recipe_classes();
  TrainerConfig plain = scaled_down(*entry.model, classes);
  plain.device = id;
  TrainerConfig edited = with_choice(plain, entry.chosen, classes);
  if (id.starts_with("cpu")) {  // it is the host
    edited.offload_optimizer = false;
    for (auto& rule : edited.remat)
      if (rule->policy == "offload") rule->policy = "recompute";
  }
  edited.memory = training_plan(edited, open_device(edited, build().registry)->info()).peak_bytes;
  const Batch batch = random_batch(plain.batch, plain.sequence, layers::vocabulary(*plain.model), 5);
  const auto large = open_device(plain, build().registry), capped = open_device(edited, build().registry);
  const std::int64_t without = training_plan(plain, large->info()).peak_bytes;
  const std::vector<double> expected = losses_of(plain, *large, batch, 3),
                            found = losses_of(edited, *capped, batch, 3);
  double apart = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i])
        << entry.model->name << " on " << id << ", step " << i;
    apart = std::max(apart, std::abs(found[i] - expected[i]) / expected[i]);
  }
  EXPECT_TRUE(std::isfinite(expected.back()) && expected.back() < expected.front()) << "the reference learns";
  EXPECT_EQ(capped->peak_bytes(), edited.memory);
  if (edited.memory < without) {
    // One byte less is refused: the limit is a limit.
    TrainerConfig less = edited;
    less.memory -= 1;
    EXPECT_THROW(losses_of(less, *open_device(less, build().registry), batch, 1), hal::OutOfMemory);
  }
  fmt::print("| {} | {} GiB | {} | {} | {} | {} | {:.1e} |\n", entry.model->name, entry.memory.bytes / kGiB,
             id, edited.memory, capped->peak_bytes(), without, apart);
}

class FitTableRuns : public testing::TestWithParam<std::string> {};

TEST_P(FitTableRuns, OfEntriesThatFit) {
  fmt::print(
      "| model | memory | on | planned | allocated | without Fit | losses apart "
      "|\n|---|---|---|---|---|---|---|\n");
  if (std::getenv("MESHLOOM_FIT_TABLE_RUNS")) {
    for (const Entry& entry : entries())
      if (entry.fits()) run(entry, GetParam());
    return;
  }
  // The two with most that was edited.
  const layers::ClassTable classes = trainer::recipe_classes();
  run(entry_of(kModels[2], kMemories[2], classes), GetParam());
  run(entry_of(kModels[5], kMemories[3], classes), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Devices, FitTableRuns, testing::ValuesIn(computing_devices()),
                         [](const auto& info) { return plain_name(info.param); });

}  // namespace
}  // namespace meshloom::tests
