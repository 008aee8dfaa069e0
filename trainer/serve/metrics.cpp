#include "trainer/serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshloom::trainer {
namespace {

std::string head_of(const std::string& name, const char* type, const char* help) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  ++counts_[static_cast<std::size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) -
                                     bounds_.begin())];
  sum_ += value;
}

std::string Histogram::text(const std::string& name, const std::string& labels) const {
  std::string out;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels,
                       i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf", count);
  }
  return out + fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels, sum_, count);
}

Metrics::Metrics()
    : first_token({0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                   0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160}),
      between_tokens({0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1,
                      2.5, 5, 10}),
      whole_request({0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                     10,   15,   20,  30,  40,  50,  60, 120, 240, 480, 960}) {}

std::string Metrics::text(const std::string& model, const EngineCounters& engine) const {
  const std::string labels = fmt::format("model_name=\"{}\"", escaped(model));
  std::string out;
  const auto one = [&](const std::string& name, const char* type, const char* help, double value) {
    out +=
        head_of("meshloom_" + name, type, help) + fmt::format("meshloom_{}{{{}}} {}\n", name, labels, value);
  };
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  one("num_requests_running", "gauge", "Requests that the engine computes.", number(engine.running));
  one("num_requests_waiting", "gauge", "Requests that wait for the engine.", number(engine.waiting));
  one("kv_cache_usage_perc", "gauge", "Pages of the cache in use; 1 = all.",
      engine.pages > 0 ? number(engine.pages_in_use) / number(engine.pages) : 0.0);
  one("prefix_cache_queries_total", "counter", "Tokens of prompts that were looked for in the cache.",
      number(engine.prompt_tokens));
  one("prefix_cache_hits_total", "counter", "Tokens of prompts that were found in the cache.",
      number(engine.cached_tokens));
  one("prompt_tokens_total", "counter", "Tokens of prompts.", number(engine.prompt_tokens));
  one("generation_tokens_total", "counter", "Tokens generated.", number(engine.generation_tokens));
  one("engine_steps_total", "counter", "Steps of the engine.", number(engine.steps));
  one("num_preemptions_total", "counter", "Requests that had to give their pages to others.",
      number(engine.preemptions));
  one("weight_updates_total", "counter", "How often other parameters were read.",
      number(engine.weight_updates));
  one("checkpoint_step", "gauge", "The step of the run whose parameters compute.",
      number(engine.checkpoint_step));
  one("spec_decode_num_drafts_total", "counter", "Guesses of tokens that were computed.",
      number(engine.drafts));
  one("spec_decode_num_draft_tokens_total", "counter", "Their tokens.", number(engine.draft_tokens));
  one("spec_decode_num_accepted_tokens_total", "counter", "Of them, those that were right.",
      number(engine.accepted_tokens));
  const KVTransferCounters& transfer = engine.kv_transfer;
  one("external_prefix_cache_queries_total", "counter",
      "Tokens of prompts that were to come from the side that computes prompts.",
      number(transfer.asked_tokens));
  one("external_prefix_cache_hits_total", "counter", "Of them, those that came.",
      number(transfer.received_tokens));
  one("kv_transfer_connected", "gauge", "Whether the side that computes prompts answers.",
      transfer.connected ? 1.0 : 0.0);
  one("kv_transfer_pages_received_total", "counter", "Pages of keys and values that were received.",
      number(transfer.pages_received));
  one("kv_transfer_bytes_received_total", "counter", "Their bytes.", number(transfer.bytes_received));
  one("kv_transfer_refusals_total", "counter", "Connections that ended because of what came over them.",
      number(transfer.refusals));
  one("kv_transfer_fallbacks_total", "counter",
      "Prompts of which pages were computed here, as the other side did not give them.",
      number(transfer.fallbacks));
  one("kv_transfer_pages_sent_total", "counter", "Pages of keys and values that were given to other servers.",
      number(transfer.pages_sent));
  one("kv_transfer_bytes_sent_total", "counter", "Their bytes.", number(transfer.bytes_sent));
  one("lora_adapters", "gauge", "Adapters that requests can name.", number(engine.adapters));
  out += head_of("meshloom_request_success_total", "counter", "Choices that ended, by reason.");
  for (const auto& [reason, count] : finished_)
    out += fmt::format("meshloom_request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels, reason,
                       count);
  out += head_of("meshloom_http_responses_total", "counter",
                 "Responses by status, without those to invalid HTTP.");
  for (const auto& [status, count] : responses_)
    out += fmt::format("meshloom_http_responses_total{{{},status=\"{}\"}} {}\n", labels, status, count);
  const auto histogram = [&](const std::string& name, const char* help, const Histogram& values) {
    out += head_of("meshloom_" + name, "histogram", help) + values.text("meshloom_" + name, labels);
  };
  histogram("time_to_first_token_seconds", "From a request to its first token.", first_token);
  histogram("inter_token_latency_seconds", "From one token to the next.", between_tokens);
  histogram("e2e_request_latency_seconds", "From a request to its end.", whole_request);
  return out;
}

}  // namespace meshloom::trainer
