#include "bench/core/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "backends/threads/backend.h"
#include "bench/measure/clock.h"
#include "bench/measure/statistics.h"
#include "hal/error.h"
#include "hal/wrappers/counted_transport.h"
#include "hal/wrappers/delayed_transport.h"
#include "kernels/core/rng.h"
#include "layers/models/trace.h"
#include "trainer/compose/compose.h"
#include "trainer/execute/agreed_error.h"
#include "trainer/execute/session.h"
#include "trainer/io/units.h"
#include "trainer/planner/timeline.h"

namespace meshloom::bench {
namespace {

using Json = nlohmann::ordered_json;
using trainer::MovedBytes;
using trainer::Session;

constexpr int kComputingSteps = 3;
constexpr double kBalancedLatency = 100e-6;
constexpr double kLookAgain = 200e-6;  // hal/backoff.h: a rank that waits sleeps so long between two looks

trainer::Plan plan_of_rank(const trainer::TrainerConfig& config, const kernels::Catalog& catalog,
                           const hal::DeviceInfo& device, int rank) {
  trainer::ComposeOptions options = config.compose_options();
  options.rank = rank;
  options.evaluation = false;
  return trainer::compose_training(*config.model, *config.learner, options, catalog, device);
}

void write_rows(const trainer::TrainerConfig& config, Session& session, int rank) {
  const std::int64_t vocabulary = layers::vocabulary(*config.model);
  for (const char* name : {"tokens", "targets", "source"}) {
    if (!session.plan().persistent_types.count(name)) continue;
    kernels::HostTensor ids(session.plan().persistent_types.at(name));
    kernels::fill_integers({ids.type, ids.data.data()}, static_cast<std::uint64_t>(rank) + 1, 0,
                           vocabulary - 1);
    session.write(name, ids.data);
  }
  const float rate = 1e-4F;
  session.write("lr", std::as_bytes(std::span(&rate, 1)));
}

void add(MovedBytes& moved, const hal::TrafficCount& count, std::int64_t sign) {
  for (const hal::Traffic& one : count.sent) {
    moved.out += sign * one.bytes;
    moved.messages_out += sign * one.messages;
  }
  for (const hal::Traffic& one : count.received) {
    moved.in += sign * one.bytes;
    moved.messages_in += sign * one.messages;
  }
}

// Steps of all ranks over one link.
class MeshRun {
 public:
  MeshRun(const trainer::TrainerConfig& config, const std::vector<std::unique_ptr<hal::Device>>& devices,
          const kernels::Catalog& catalog, const MeshOptions& options, MeshReport& report)
      : config_(config), devices_(devices), catalog_(catalog), options_(options), report_(report) {
    report_.planned.resize(devices.size());
    report_.moved.resize(devices.size());
  }

  // The seconds of each step, of the rank that takes longest. `overlaps` says which of them overlap.
  std::vector<double> run(const hal::LinkModel* link, const std::vector<bool>& overlaps, int begin, int all) {
    std::vector<double> seconds(overlaps.size(), 0);
    std::mutex mutex;
    backends::threads::run_ranks(
        static_cast<int>(devices_.size()), [&](std::unique_ptr<hal::Transport> transport) {
          const int rank = transport->rank();
          const auto own = static_cast<std::size_t>(rank);
          hal::TrafficCount count;
          if (link) transport = hal::delayed(std::move(transport), *link);
          transport = hal::counted(std::move(transport), count);
          hal::Device& device = *devices_[own];
          Session session(device, catalog_, plan_of_rank(config_, catalog_, device.info(), rank), {},
                          {transport.get(), options_.patience});
          trainer::initialize(session, static_cast<std::uint64_t>(config_.seed));
          write_rows(config_, session, rank);
          {
            const std::lock_guard lock(mutex);
            note(session.plan(), own);
          }
          for (std::size_t step = 0; step <= overlaps.size(); ++step) {  // the first warms up
            std::string stop;
            if (rank == 0 && options_.stopped && options_.stopped()) stop = "stopped";
            // Ranks begin together, and go on together.
            if (!trainer::agreed_error(*transport, stop, options_.patience).empty()) {
              report_.stopped = report_.stopped || rank == 0;
              break;
            }
            if (rank == 0 && options_.progress)
              options_.progress(begin + static_cast<int>(step), all,
                                link ? fmt::format("step {}", step + 1) : "computing alone");
            session.set_overlap(step > 0 && overlaps[step - 1]);
            MovedBytes moved;
            add(moved, count, -1);
            const double took = time([&] {
              for (const trainer::UpdateStep& part : session.plan().steps.update)
                for (std::int64_t i = 0; i < part.times; ++i) session.run(part.step);
              session.wait();
            });
            add(moved, count, 1);
            const std::lock_guard lock(mutex);
            report_.moved[own] = moved;
            if (step > 0) seconds[step - 1] = std::max(seconds[step - 1], took);
          }
        });
    std::erase(seconds, 0.0);  // that were not run
    return seconds;
  }

 private:
  void note(const trainer::Plan& plan, std::size_t rank) {
    report_.planned[rank] = {};
    for (const auto& [axes, moved] : plan.update_moved_bytes()) report_.planned[rank] += moved;
    report_.peak_bytes = std::max(report_.peak_bytes, plan.peak_bytes);
    report_.staging_bytes = std::max(report_.staging_bytes, plan.staging_bytes);
  }

  const trainer::TrainerConfig& config_;
  const std::vector<std::unique_ptr<hal::Device>>& devices_;
  const kernels::Catalog& catalog_;
  const MeshOptions& options_;
  MeshReport& report_;
};

// Calls take as long as they did where moves take no time: ranks share cores, which no time of a call alone knows.
void predict(const trainer::TrainerConfig& config, const hal::Device& device, const kernels::Catalog& catalog,
             MeshReport& report) {
  trainer::Plan plan = plan_of_rank(config, catalog, device.info(), 0);
  const double calls = plan.update_predicted_seconds();
  if (calls <= 0) return;
  for (auto& [key, planned] : plan.steps.programs)
    for (kernels::Call& call : planned.program.calls)
      if (call.choice) call.choice->predicted_seconds *= report.computing / calls;
  constexpr double kUnlimited = 1e15;
  const hal::Network network{"emulated",
                             "",
                             {},
                             {{"link",
                               0,
                               report.link.latency + kLookAgain,
                               0,
                               report.link.bandwidth > 0 ? report.link.bandwidth : kUnlimited,
                               {}}}};
  const trainer::StepTime time = trainer::simulate_step({&plan}, network, device.info());
  report.predicted = time.seconds;
  report.predicted_waiting = report.computing;
  for (const auto& [crossing, seconds] : time.moves) report.predicted_waiting += seconds;
}

}  // namespace

double MeshReport::error() const {
  const double measured = overlapping.empty() ? 0 : median(overlapping);
  return measured > 0 && predicted > 0 ? std::abs(predicted - measured) / measured : 0;
}

double median_error(const std::vector<MeshReport>& reports) {
  std::vector<double> errors;
  for (const MeshReport& report : reports)
    if (!report.overlapping.empty()) errors.push_back(report.error());
  return errors.empty() ? 0 : median(errors);
}

std::string to_table(const std::vector<MeshReport>& reports) {
  std::string text = fmt::format("{:<24} {:<34} {:>10} {:>10} {:>7} {:>14} {}\n", "mesh", "link", "predicted",
                                 "measured", "error", "planned bytes", "moved");
  for (const MeshReport& report : reports) {
    if (report.overlapping.empty()) continue;
    const double measured = median(report.overlapping);
    std::int64_t planned = 0, moved = 0;
    for (const MovedBytes& one : report.planned) planned += one.out;
    for (const MovedBytes& one : report.moved) moved += one.out;
    text += fmt::format("{:<24} {:<34} {:>10} {:>10} {:>+6.0f}% {:>14} {}\n", report.mesh,
                        to_string(report.link), seconds_text(report.predicted), seconds_text(measured),
                        100 * (report.predicted - measured) / measured, planned,
                        report.as_planned() ? "the same" : std::to_string(moved));
  }
  return text +
         fmt::format("median error {:.1f} % of {} runs\n", 100 * median_error(reports), reports.size());
}

void measure_mesh(const trainer::TrainerConfig& config,
                  const std::vector<std::unique_ptr<hal::Device>>& devices, const kernels::Catalog& catalog,
                  const MeshOptions& options, MeshReport& report) {
  report.tokens = config.batch * config.sequence;
  MeshRun run(config, devices, catalog, options, report);
  const int all = kComputingSteps + 2 * options.steps + 2;
  const std::vector<double> computing = run.run(nullptr, std::vector<bool>(kComputingSteps, false), 0, all);
  report.computing = median(computing);
  if (report.stopped) return;
  report.balanced = !options.link;
  if (options.link) {
    report.link = *options.link;
  } else {
    std::int64_t most = 0;
    for (const MovedBytes& planned : report.planned) most = std::max({most, planned.out, planned.in});
    report.link = {kBalancedLatency, static_cast<double>(most) / report.computing, 0};
  }
  predict(config, *devices[0], catalog, report);
  std::vector<bool> turns;
  for (int step = 0; step < options.steps; ++step) turns.insert(turns.end(), {false, true});
  const std::vector<double> seconds = run.run(&report.link, turns, kComputingSteps + 1, all);
  for (std::size_t i = 0; i + 1 < seconds.size(); i += 2) {
    report.waiting.push_back(seconds[i]);
    report.overlapping.push_back(seconds[i + 1]);
  }
}

std::string to_text(const MeshReport& report) {
  std::string text;
  for (const auto& [name, value] : report.header.fields) text += fmt::format("{:<11} {}\n", name, value);
  if (report.waiting.empty()) return text + "stopped before the first steps were done\n";
  text += fmt::format("link        {}{}\n", to_string(report.link),
                      report.balanced ? ", at which moving takes as long as computing" : "");
  text += fmt::format("computing   {} a step, where moves take no time\n", seconds_text(report.computing));
  const auto line = [&](const char* name, const std::vector<double>& seconds) {
    const Summary all = summarize(seconds);
    return fmt::format("{}{} a step (+- {:.0f}%{}, {} steps, fastest {}): {:.0f} tokens/s\n", name,
                       seconds_text(all.median), 100 * all.spread, all.noisy ? ", noisy" : "", all.samples,
                       seconds_text(all.fastest), static_cast<double>(report.tokens) / all.median);
  };
  if (report.predicted > 0)
    text += fmt::format("predicted   {} a step without overlap, {} with\n",
                        seconds_text(report.predicted_waiting), seconds_text(report.predicted));
  text += line("no overlap  ", report.waiting) + line("overlap     ", report.overlapping);
  const Ratio ratio = paired_ratio(report.waiting, report.overlapping);
  text += fmt::format(
      "ratio       {:.3f} (overlap to no overlap, the median of pairs of steps that took turns)\n",
      ratio.median);
  for (std::size_t rank = 0; rank < report.planned.size(); ++rank) {
    const MovedBytes &planned = report.planned[rank], &moved = report.moved[rank];
    text += fmt::format(
        "rank {:<6} {} bytes out and {} in are planned a step, in {} messages out; moved: {}\n", rank,
        planned.out, planned.in, planned.messages_out,
        planned == moved
            ? "the same"
            : fmt::format("{} out and {} in, in {} messages out", moved.out, moved.in, moved.messages_out));
  }
  text += fmt::format("memory      {} a rank, and {} for what is on its way\n",
                      trainer::bytes_text(static_cast<double>(report.peak_bytes)),
                      trainer::bytes_text(static_cast<double>(report.staging_bytes)));
  if (report.stopped) text += "stopped: fewer steps than requested\n";
  return text;
}

std::string to_json(const MeshReport& report) {
  Json json;
  json["schema"] = "meshloom-mesh/1";
  for (const auto& [name, text] : report.header.fields) json["header"][name] = text;
  json["recipe"] = report.recipe;
  json["mesh"] = report.mesh;
  json["link"] = {{"latency_seconds", report.link.latency},
                  {"bytes_per_second", report.link.bandwidth},
                  {"jitter_seconds", report.link.jitter},
                  {"balanced", report.balanced}};
  json["tokens"] = report.tokens;
  json["computing_seconds"] = report.computing;
  json["predicted_no_overlap_seconds"] = report.predicted_waiting;
  json["predicted_seconds"] = report.predicted;
  json["no_overlap_seconds"] = report.waiting;
  json["overlap_seconds"] = report.overlapping;
  json["no_overlap_median"] = median(report.waiting);
  json["overlap_median"] = median(report.overlapping);
  json["ratio"] = paired_ratio(report.waiting, report.overlapping).median;
  const auto bytes = [](const MovedBytes& moved) {
    return Json{{"bytes_out", moved.out},
                {"bytes_in", moved.in},
                {"messages_out", moved.messages_out},
                {"messages_in", moved.messages_in}};
  };
  json["ranks"] = Json::array();
  for (std::size_t rank = 0; rank < report.planned.size(); ++rank)
    json["ranks"].push_back({{"planned", bytes(report.planned[rank])}, {"moved", bytes(report.moved[rank])}});
  json["as_planned"] = report.as_planned();
  json["peak_bytes"] = report.peak_bytes;
  json["staging_bytes"] = report.staging_bytes;
  json["stopped"] = report.stopped;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshloom::bench
