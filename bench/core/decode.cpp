#include "bench/core/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "bench/core/table.h"
#include "bench/measure/clock.h"
#include "hal/math.h"
#include "layers/models/trace.h"
#include "trainer/inference/model_runner.h"

namespace meshloom::bench {
namespace {

using Json = nlohmann::ordered_json;
using trainer::Chunk;
using trainer::ModelRunner;
using trainer::Sequence;

constexpr std::int64_t kPageSize = 64;

// Texts of random tokens, all of whose tokens but `fresh` are computed.
class Texts {
 public:
  Texts(std::int64_t count, std::int64_t length, std::int64_t fresh, std::int64_t vocabulary)
      : sequences_(static_cast<std::size_t>(count)), fresh_(fresh), vocabulary_(vocabulary) {
    trainer::Page page = 0;
    for (Sequence& sequence : sequences_) {
      sequence.tokens.resize(static_cast<std::size_t>(length));
      for (std::int32_t& token : sequence.tokens) token = random_token();
      sequence.prompt = length;
      sequence.sequence_id = static_cast<std::int32_t>(&sequence - sequences_.data());
      sequence.computed = length - fresh;
      sequence.pages.resize(static_cast<std::size_t>(hal::ceil_div(length, kPageSize)));
      std::iota(sequence.pages.begin(), sequence.pages.end(), page);
      page += static_cast<trainer::Page>(sequence.pages.size());
    }
  }

  // To be computed; other tokens each time.
  std::vector<Chunk> next() {
    std::vector<Chunk> chunks;
    for (Sequence& sequence : sequences_) {
      std::generate(sequence.tokens.end() - fresh_, sequence.tokens.end(), [&] { return random_token(); });
      chunks.push_back({&sequence, fresh_, 1});
    }
    return chunks;
  }

 private:
  std::int32_t random_token() {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(vocabulary_));
  }
  std::vector<Sequence> sequences_;
  std::int64_t fresh_, vocabulary_;
  std::mt19937_64 random_{1};
};

double rate(double amount, const DecodeCase& of) { return amount / summarize(of.wall).median; }

}  // namespace

void run_decode(const trainer::TrainerConfig& config, const DecodeOptions& options, hal::Device& device,
                const kernels::Catalog& catalog, const std::function<bool()>& stopped,
                const std::function<void(int, int, const std::string&)>& progress, DecodeReport& report) {
  trainer::ModelRunnerOptions sizes;
  sizes.length = std::max(options.context, options.prompt);
  sizes.sequences = *std::max_element(options.texts.begin(), options.texts.end());
  sizes.tokens = options.texts;
  if (options.prompt > 0) sizes.tokens.push_back(options.prompt);
  sizes.page_size = kPageSize;
  sizes.pages = std::max(sizes.sequences * hal::ceil_div(options.context, kPageSize),
                         hal::ceil_div(options.prompt, kPageSize));
  sizes.batch_invariant = options.batch_invariant;
  ModelRunner runner(config, sizes, device, catalog, [&](trainer::Session& session) {
    trainer::initialize(session, static_cast<std::uint64_t>(config.seed));
  });
  report.read_bytes_per_second = device.info().profile.memory_bytes_per_second;
  report.batch_dependence = runner.batch_dependence();
  const double cached_token_bytes =
      static_cast<double>(runner.plan().cache_bytes.page) / kPageSize +
      static_cast<double>(runner.plan().cache_bytes.sequence) / static_cast<double>(sizes.length);
  std::vector<Texts> texts;
  const auto add = [&](std::string name, std::int64_t count, std::int64_t length, std::int64_t fresh) {
    texts.emplace_back(count, length, fresh, layers::vocabulary(*config.model));
    DecodeCase& added = report.cases.emplace_back();
    added.name = std::move(name);
    added.tokens = count * fresh;
    added.calls = step_calls(runner.plan().steps.at(runner.program_of(added.tokens)).program, catalog, 1);
    for (const StepCall& call : added.calls) {
      added.flops += call.flops;
      if (call.op != "paged_attention") added.bytes += call.bytes;
    }
    added.bytes += cached_token_bytes * static_cast<double>(count * length);
  };
  for (const std::int64_t count : options.texts)
    add(fmt::format("{} text{} of {} tokens", count, count > 1 ? "s" : "", options.context), count,
        options.context, 1);
  if (options.prompt > 0)
    add(fmt::format("a prompt of {} tokens", options.prompt), 1, options.prompt, options.prompt);
  const int total = static_cast<int>(report.cases.size()) * static_cast<int>(options.rounds + 1);
  int done = 0;
  for (std::int64_t round = 0; round <= options.rounds; ++round)
    for (std::size_t i = 0; i < report.cases.size(); ++i) {
      if ((report.stopped = stopped && stopped())) return;
      DecodeCase& of = report.cases[i];
      if (progress) progress(done++, total, round == 0 ? "warming up" : of.name);
      const double seconds = time([&, chunks = texts[i].next()] { runner.run(chunks); });
      if (round == 0) continue;
      of.wall.push_back(seconds);
      if (!device.info().timestamps) continue;
      const std::vector<double> each = runner.time_calls(texts[i].next());
      for (std::size_t call = 0; call < of.calls.size(); ++call)
        of.calls[call].seconds.push_back(each.at(call));
    }
}

std::string to_text(const DecodeReport& report, const std::vector<std::string>& by) {
  std::string text = header_text(report.header, report.ceilings);
  text += fmt::format("the same bits whatever else runs: {}\n\n",
                      report.batch_dependence.empty() ? "yes" : "no; " + report.batch_dependence);
  std::vector<std::vector<std::string>> rows{
      {"case", "tokens/s", "a run", "+-", "GB/s", "of the bandwidth", "GFLOP/s", "calls"}};
  for (const DecodeCase& of : report.cases) {
    if (of.wall.empty()) continue;
    const Summary wall = summarize(of.wall);
    double calls = 0;
    for (const StepCall& call : of.calls) calls += median(call.seconds);
    rows.push_back({of.name, fmt::format("{:.1f}", rate(static_cast<double>(of.tokens), of)),
                    seconds_text(wall.median),
                    fmt::format("{:.0f}%{}", 100 * wall.spread, wall.noisy ? " noisy" : ""),
                    fmt::format("{:.1f}", rate(of.bytes, of) * 1e-9),
                    report.ceilings.bytes_per_second > 0
                        ? fmt::format("{:.0f}%", 100 * rate(of.bytes, of) / report.ceilings.bytes_per_second)
                        : "",
                    fmt::format("{:.1f}", rate(of.flops, of) * 1e-9),
                    calls > 0 ? fmt::format("{:.0f}%", 100 * calls / wall.median) : ""});
  }
  text += table(rows, {true, false, false, false, false, false, false, false});
  text += "calls: their sum, one after another by the device's clock, as a part of a run\n";
  for (const DecodeCase& of : report.cases) {
    if (by.empty() || of.calls.empty() || of.calls.front().seconds.empty()) continue;
    StepReport step;
    step.calls = of.calls;
    step.ceilings = report.ceilings;
    text += "\n" + of.name + "\n" + groups_text(step, by);
  }
  if (report.stopped) text += "stopped: fewer rounds than requested\n";
  return text;
}

std::string to_json(const DecodeReport& report, const std::vector<std::string>& by) {
  Json json;
  json["schema"] = "meshloom-decode/1";
  for (const auto& [name, text] : report.header.fields) json["header"][name] = text;
  json["recipe"] = report.recipe;
  json["batch_invariant"] = report.batch_dependence.empty();
  json["bytes_per_second"] = report.ceilings.bytes_per_second;
  json["read_bytes_per_second"] = report.read_bytes_per_second;
  json["stopped"] = report.stopped;
  json["cases"] = Json::array();
  for (const DecodeCase& of : report.cases) {
    const Summary wall = summarize(of.wall);
    Json item{{"name", of.name},        {"tokens", of.tokens},   {"runs", wall.samples},
              {"seconds", wall.median}, {"spread", wall.spread}, {"noisy", wall.noisy},
              {"bytes", of.bytes},      {"flops", of.flops}};
    StepReport step;
    step.calls = of.calls;
    item["groups"] = groups_json(step, by);
    json["cases"].push_back(std::move(item));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshloom::bench
