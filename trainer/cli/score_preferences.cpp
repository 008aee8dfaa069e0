#include "trainer/cli/score_preferences.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/data/jsonl/jsonl_examples.h"
#include "trainer/data/jsonl/jsonl_files.h"
#include "trainer/data/text/lines.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/inference/scorer.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/json.h"
#include "trainer/rules/resolve.h"
#include "trainer/run/progress.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDepth = 32;

// The two answers of a preference, each with its prompt.
struct Answer {
  std::span<const std::int32_t> tokens;
  std::span<const char> counted;
};

std::array<Answer, 2> answers_of(const Example& example) {
  const std::span tokens(example.tokens);
  const std::span counted(example.loss_mask);
  const std::size_t at = example.rejected;
  return {{{tokens.first(at), counted.first(at)}, {tokens.subspan(at), counted.subspan(at)}}};
}

struct FoundPreferences {
  std::vector<LineFile::Line> lines;  // of those that fit; their text is read again
  std::size_t longest = 2;            // tokens of an answer with its prompt
  std::int64_t skipped = 0;
};

FoundPreferences find_preferences(LineFile& file, const JsonlFormat& format) {
  FoundPreferences found;
  LineFile::Line line;
  while (file.next(line)) {
    if (line.text.find_first_not_of(" \t") == std::string::npos) continue;
    const std::string where = fmt::format("{}, line {}", file.where(), line.number);
    const Example example = format.read(line.text, where);
    if (example.rejected == 0)
      throw Error(where, "a line must be a preference, with \"chosen\" and \"rejected\"", "another example");
    if (!format.fits(example)) {
      ++found.skipped;
      continue;
    }
    for (const Answer& answer : answers_of(example))
      found.longest = std::max(found.longest, answer.tokens.size());
    line.text.clear();
    found.lines.push_back(line);
  }
  if (found.lines.empty())
    throw Error(file.where(), "must hold at least one preference of at most " + format.limit(),
                found.skipped > 0 ? fmt::format("{} longer ones", found.skipped) : "none");
  return found;
}

}  // namespace

int score_preferences(const ModelToRun& model, const Registries& registries,
                      const ScorePreferencesOptions& options) {
  TrainerConfig config = inference_recipe(model.checkpoint(), options.inference, registries);
  if (!config.input.as<JsonlFilesConfig>())
    layers::replace(config, std::string(config.input->class_name()), "JsonlFiles", registries.classes);
  if (options.sequence > 0) config.sequence = options.sequence;
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const std::shared_ptr<const JsonlFormat> format =
      config.input.as<JsonlFilesConfig>()->format(*tokenizer, config.sequence);
  LineFile file(options.file, "'" + options.file + "'");
  const FoundPreferences found = find_preferences(file, *format);
  for (const std::string& note : format->notes()) say_note(note);
  if (found.skipped > 0)
    say_note(fmt::format(
        "{} of {} preferences have more than {} and are left out; --sequence takes longer ones",
        found.skipped, found.skipped + static_cast<std::int64_t>(found.lines.size()), format->limit()));
  const std::unique_ptr<hal::Device> device = open_device(config, registries.devices, say_note);
  Scorer scorer(config, static_cast<std::int64_t>(found.longest), *device, registries.catalog,
                model.checkpoint().model);
  std::string written;
  const auto count = static_cast<std::int64_t>(found.lines.size());
  ProgressNotes progress(count, "preferences are scored", say_note);
  std::int64_t done = 0;
  for (const LineFile::Line& line : found.lines) {
    const std::string text = file.at(line.offset, line.bytes);
    const std::string where = fmt::format("{}, line {}", file.where(), line.number);
    const Example example = format->read(text, where);
    Json json = parse_ordered_json(text, where, "the line", kDepth);
    const std::array<Answer, 2> answers = answers_of(example);
    json[kReferenceOfChosen] = scorer.logprob(answers[0].tokens, answers[0].counted);
    json[kReferenceOfRejected] = scorer.logprob(answers[1].tokens, answers[1].counted);
    written += json.dump() + "\n";
    progress(++done);
  }
  write_file(options.out, written);
  fmt::print("{} preferences scored, written to {}\n", count, options.out);
  return 0;
}

}  // namespace meshloom::trainer
