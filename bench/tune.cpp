#include "bench/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "bench/check.h"
#include "bench/clock.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/statistics.h"
#include "bench/table.h"
#include "hal/error.h"

namespace meshloom::bench {
namespace {

struct Challenger {
  const kernels::Variant* variant;
  kernels::Fit fit;
  std::string name;  // the variant, with parameters where they are not its own choice
};

// Other variants first: they differ most.
std::vector<Challenger> challengers(const hal::Device& device, const kernels::Catalog& catalog,
                                    const Workload& workload, const kernels::Choice& standard) {
  std::vector<Challenger> result, tiles;
  for (const kernels::Variant* variant : catalog.variants(workload.contract->name, device.info().backend)) {
    if (variant->name == "reference") continue;
    kernels::Fit fit = variant->answer(workload.view(), device.info());
    if (!fit.ok) continue;
    if (variant->alternatives && !fit.params.count("staged"))
      for (kernels::Fit& other : variant->alternatives(workload.view(), device.info()))
        if (other.params != fit.params) {
          std::string name = variant->name;
          for (const auto& [param, value] : other.params)
            if (const auto own = fit.params.find(param); own == fit.params.end() || own->second != value)
              name += fmt::format(" {}={}", param, value);
          tiles.push_back({variant, std::move(other), std::move(name)});
        }
    if (variant != standard.variant) result.push_back({variant, std::move(fit), variant->name});
  }
  result.insert(result.end(), std::make_move_iterator(tiles.begin()), std::make_move_iterator(tiles.end()));
  return result;
}

std::string checked(const Checker& checker, Subject& subject) {
  const CheckResult result = checker.check(subject.outputs(0));
  return result.state == CheckResult::State::wrong ? "wrong: " + result.problem : "";
}

}  // namespace

std::vector<Trial> tune(hal::Device& device, const kernels::Catalog& catalog,
                        const std::vector<Workload>& workloads, const TuneOptions& options,
                        trainer::Tuning& tuning, const std::function<void()>& save) {
  constexpr double kLongest = 0.5;  // seconds of samples per side: more tells nothing new
  constexpr double kHopeless = 3;   // times slower in the first sample: not worth another
  const auto stopped = [&] { return options.stopped && options.stopped(); };
  const Clock::time_point begin = Clock::now();
  const auto left = [&] { return options.budget - seconds_since(begin); };
  std::vector<Trial> trials;
  int pairs = 0;
  for (const Workload& workload : workloads)
    pairs += static_cast<int>(
        challengers(device, catalog, workload, selected(catalog, device.info(), workload)).size());
  int done = 0;
  for (const Workload& workload : workloads) {
    if (stopped() || left() <= 0) break;
    const kernels::Choice standard = selected(catalog, device.info(), workload);
    Trial trial{workload.call(),
                workload.shape,
                standard.variant->name,
                standard.variant->name,
                workload.per_step,
                0,
                0,
                0,
                {}};
    const Challenger* best = nullptr;
    const std::vector<Challenger> others = challengers(device, catalog, workload, standard);
    try {
      const auto inputs = make_inputs(device, catalog, workload, 1);
      const Checker checker(workload, inputs);
      const auto ours = device_subject(device, workload, standard, inputs, 1);
      // What is left, shared by the pairs that are left; a sample that outlasts its share is still one.
      const auto share = [&](double part) {
        return std::min(kLongest, std::max(1e-3, part * left() / std::max(1, pairs - done) / 2));
      };
      MeasureOptions first{Buffers::warm, share(0.2), 1, 20, nullptr, options.stopped};
      trial.standard_seconds = trial.seconds = median(measure({ours.get()}, first)[0].seconds);
      double best_gain = 1 + kLeastGain;
      for (const Challenger& other : others) {
        if (options.progress)
          options.progress(
              done, pairs,
              fmt::format("{} {} {}", workload.contract->name, workload.shape, other.name));
        ++done;
        if (stopped() || left() <= 0) {
          trial.problems.push_back(other.name + " was not tried: out of time");
          continue;
        }
        try {
          const kernels::Choice choice{other.variant, other.fit.params, other.fit.workspace_bytes, 0};
          const auto theirs = device_subject(device, workload, choice, inputs, 1);
          ++trial.challengers;
          theirs->prepare(1);
          theirs->run();
          if (const std::string problem = checked(checker, *theirs); !problem.empty()) {
            trial.problems.push_back(other.name + " is " + problem);
            continue;
          }
          if (time([&] { theirs->run(); }) > kHopeless * std::max(trial.standard_seconds, 50e-6)) continue;
          MeasureOptions pair{Buffers::warm, share(1), 5, 200, nullptr, options.stopped};
          const std::vector<Samples> samples = measure({theirs.get(), ours.get()}, pair);
          const double gain = paired_ratio(samples[0].seconds, samples[1].seconds).median;
          trial.standard_seconds = std::min(trial.standard_seconds, median(samples[1].seconds));
          if (trial.winner == trial.standard) trial.seconds = trial.standard_seconds;
          if (gain <= best_gain) continue;
          best_gain = gain;
          trial.winner = other.name;
          best = &other;
          trial.seconds = median(samples[1].seconds) / gain;
          trial.standard_seconds = median(samples[1].seconds);
        } catch (const hal::DeviceLost&) {
          throw;
        } catch (const std::exception& error) {
          trial.problems.push_back(other.name + " failed: " + error.what());
        }
      }
    } catch (const hal::DeviceLost&) {
      throw;
    } catch (const std::exception& error) {
      trial.problems.push_back(trial.standard + " failed: " + error.what());
      trials.push_back(std::move(trial));
      continue;
    }
    tuning.set(trial.call, {best ? best->variant->name : trial.standard, best ? best->fit.params : standard.params,
                            trial.seconds, trial.standard, trial.standard_seconds});
    save();
    trials.push_back(std::move(trial));
  }
  return trials;
}

std::string to_text(const std::vector<Trial>& trials) {
  std::vector<std::vector<std::string>> rows{
      {"call", "standard", "its time", "winner", "time", "gain", "per step"}};
  double before = 0, after = 0;
  for (const Trial& trial : trials) {
    const bool won = trial.winner != trial.standard;
    const auto times = static_cast<double>(std::max<std::int64_t>(1, trial.per_step));
    before += trial.standard_seconds * times;
    after += trial.seconds * times;
    rows.push_back({shortened(trial.call, 70), trial.standard, seconds_text(trial.standard_seconds),
                    won ? trial.winner : "the same", won ? seconds_text(trial.seconds) : "",
                    won ? fmt::format("{:.2f}x", trial.standard_seconds / trial.seconds) : "",
                    trial.per_step > 0 ? std::to_string(trial.per_step) : ""});
  }
  std::string text = table(rows, {true, true, false, true, false, false, false});
  for (const Trial& trial : trials)
    for (const std::string& problem : trial.problems)
      text += shortened(trial.call, 60) + ": " + problem + "\n";
  return text + fmt::format("\n{} {}: {} before, {} after ({:.1f}% less)\n", trials.size(),
                            trials.size() == 1 ? "call" : "calls", seconds_text(before), seconds_text(after),
                            before > 0 ? 100 * (1 - after / before) : 0);
}

}  // namespace meshloom::bench
