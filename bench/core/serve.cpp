#include "bench/core/serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "bench/core/table.h"
#include "bench/measure/clock.h"
#include "bench/measure/statistics.h"
#include "hal/error.h"
#include "trainer/execute/session.h"
#include "trainer/inference/engine.h"

namespace meshloom::bench {
namespace {

using Json = nlohmann::ordered_json;

// When the tokens of a text came.
class Times : public trainer::RequestEvents {
 public:
  bool on_token(const trainer::TokenScore&) override {
    tokens.push_back(Clock::now());
    return true;
  }
  void on_finish(trainer::FinishReason reason, const trainer::Usage&, const std::string& message) override {
    if (reason != trainer::FinishReason::length) error = message.empty() ? "it ended early" : message;
  }
  std::vector<Clock::time_point> tokens;
  std::string error;
};

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Of a warm-up, short texts.
void run_round(trainer::Engine& engine, const ServeOptions& options, std::mt19937_64& random, ServeCase& of,
               bool measured) {
  const std::int64_t prompt = measured ? options.prompt : std::min<std::int64_t>(options.prompt, 16),
                     tokens = measured ? options.tokens : std::min<std::int64_t>(options.tokens, 4);
  std::vector<std::shared_ptr<Times>> texts;
  const Clock::time_point begun = Clock::now();
  for (std::int64_t i = 0; i < of.texts; ++i) {
    trainer::Request request;
    request.prompt.resize(static_cast<std::size_t>(prompt));
    for (std::int32_t& token : request.prompt)
      token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(engine.vocabulary()));
    request.sampler.temperature = options.temperature;
    request.sampler.seed = random();
    request.max_tokens = tokens;
    request.logprobs = false;  // as a server's where nobody asks for them
    request.events = texts.emplace_back(std::make_shared<Times>());
    engine.submit(std::move(request));
  }
  while (engine.step())
    ;
  const double whole = seconds_since(begun);
  double prompts = 0;
  std::vector<double> between;
  for (const auto& text : texts) {
    if (!text->error.empty()) throw Error("a text", "must be written whole", text->error);
    prompts = std::max(prompts, seconds(text->tokens.front() - begun));
    for (std::size_t i = 1; i < text->tokens.size(); ++i)
      between.push_back(seconds(text->tokens[i] - text->tokens[i - 1]));
  }
  if (!measured) return;
  of.prompts.push_back(prompts);
  of.whole.push_back(whole);
  of.between.push_back(between.empty() ? 0 : median(between));
}

struct Rates {
  double tokens, prompt_tokens, decode_tokens;  // a second
};

Rates rates_of(const ServeReport& report, const ServeCase& of) {
  const auto texts = static_cast<double>(of.texts);
  const double whole = median(of.whole), prompts = median(of.prompts);
  const auto tokens = static_cast<double>(report.options.tokens);
  return {texts * tokens / whole, texts * static_cast<double>(report.options.prompt) / prompts,
          whole > prompts ? texts * (tokens - 1) / (whole - prompts) : 0};
}

}  // namespace

void run_serve(const trainer::TrainerConfig& config, const ServeOptions& options, hal::Device& device,
               const kernels::Catalog& catalog, const std::function<bool()>& stopped,
               const std::function<void(int, int, const std::string&)>& progress, ServeReport& report) {
  report.options = options;
  trainer::EngineOptions sizes;
  sizes.max_length = options.prompt + options.tokens;
  sizes.max_sequences = *std::max_element(options.texts.begin(), options.texts.end());
  sizes.step_tokens = options.step_tokens;
  sizes.batch_invariant = options.batch_invariant;
  trainer::Engine engine(config, sizes, device, catalog, [&](trainer::Session& session) {
    trainer::initialize(session, static_cast<std::uint64_t>(config.seed));
  });
  report.batch_dependence = engine.batch_dependence();
  for (const std::int64_t texts : options.texts) report.cases.push_back({texts, {}, {}, {}});
  std::mt19937_64 random(1);
  const int total = static_cast<int>(report.cases.size()) * static_cast<int>(options.rounds + 1);
  int done = 0;
  for (std::int64_t round = 0; round <= options.rounds; ++round)
    for (ServeCase& of : report.cases) {
      if ((report.stopped = stopped && stopped())) return;
      if (progress)
        progress(done++, total, round == 0 ? "warming up" : fmt::format("{} texts at once", of.texts));
      run_round(engine, options, random, of, round > 0);
    }
}

std::string to_text(const ServeReport& report) {
  std::string text = header_text(report.header, {});
  text += fmt::format("the same bits whatever else runs: {}\n\n",
                      report.batch_dependence.empty() ? "yes" : "no; " + report.batch_dependence);
  std::vector<std::vector<std::string>> rows{{"texts at once", "tokens/s", "+-", "tokens of prompts/s",
                                              "tokens/s behind prompts", "between tokens"}};
  for (const ServeCase& of : report.cases) {
    if (of.whole.empty()) continue;
    const Rates rates = rates_of(report, of);
    const Summary whole = summarize(of.whole);
    rows.push_back({std::to_string(of.texts), fmt::format("{:.1f}", rates.tokens),
                    fmt::format("{:.0f}%{}", 100 * whole.spread, whole.noisy ? " noisy" : ""),
                    fmt::format("{:.1f}", rates.prompt_tokens), fmt::format("{:.1f}", rates.decode_tokens),
                    seconds_text(median(of.between))});
  }
  text += table(rows, {false, false, false, false, false, false});
  text += fmt::format("prompts of {} tokens, {} tokens behind each\n", report.options.prompt,
                      report.options.tokens);
  if (report.stopped) text += "stopped: fewer rounds than requested\n";
  return text;
}

std::string to_json(const ServeReport& report) {
  Json json;
  json["schema"] = "meshloom-serve/1";
  for (const auto& [name, text] : report.header.fields) json["header"][name] = text;
  json["recipe"] = report.recipe;
  json["batch_invariant"] = report.batch_dependence.empty();
  json["prompt"] = report.options.prompt;
  json["tokens"] = report.options.tokens;
  json["stopped"] = report.stopped;
  json["cases"] = Json::array();
  for (const ServeCase& of : report.cases) {
    if (of.whole.empty()) continue;
    const Rates rates = rates_of(report, of);
    json["cases"].push_back({{"texts", of.texts},
                             {"tokens_per_second", rates.tokens},
                             {"prompt_tokens_per_second", rates.prompt_tokens},
                             {"decode_tokens_per_second", rates.decode_tokens},
                             {"seconds", of.whole},
                             {"seconds_between_tokens", median(of.between)}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshloom::bench
