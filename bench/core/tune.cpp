#include "bench/core/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "bench/core/report.h"
#include "bench/core/table.h"
#include "bench/measure/check.h"
#include "bench/measure/clock.h"
#include "bench/measure/measure.h"
#include "bench/measure/statistics.h"
#include "hal/error.h"
#include "trainer/execute/candidates.h"
#include "trainer/execute/commands_of.h"
#include "trainer/execute/rank_candidates.h"

namespace meshloom::bench {
namespace {

using Challenger = trainer::Candidate;

// Other variants come first, because they differ most. Then come alternative parameters: those that look best to the driver's
// compiler first, or in random order where it cannot be asked, so that runs that are short of time try others each.
std::vector<Challenger> challengers(const hal::Device& device, const kernels::Catalog& catalog,
                                    const Workload& workload, const kernels::Choice& standard,
                                    hal::Device* inspector) {
  std::vector<Challenger> result, tiles;
  for (Challenger& one : trainer::candidates(catalog, device.info(), workload.view()))
    if (!one.is_own)
      tiles.push_back(std::move(one));
    else if (one.variant != standard.variant)
      result.push_back(std::move(one));
  std::shuffle(tiles.begin(), tiles.end(), std::mt19937(std::random_device()()));
  if (inspector && tiles.size() > 1) {
    const kernels::Case call{workload.label, workload.inputs, workload.attrs};
    std::vector<Challenger> best_first;
    for (trainer::RankedCandidate& one :
         trainer::rank_candidates(*inspector, *workload.contract, call, tiles))
      best_first.push_back(std::move(one.candidate));
    tiles = std::move(best_first);
  }
  result.insert(result.end(), std::make_move_iterator(tiles.begin()), std::make_move_iterator(tiles.end()));
  return result;
}

std::string checked(const Checker& checker, Subject& subject) {
  const CheckResult result = checker.check(subject.outputs(0));
  return result.state == CheckResult::State::wrong ? "wrong: " + result.problem : "";
}

kernels::Choice choice_of(const Challenger& one) {
  return {one.variant, one.fit.params, one.fit.workspace_bytes, 0};
}

// Compiles the kernels of challengers on all cores. What does not compile says so when it is tried.
void load_together(hal::Device& device, const Workload& workload, std::span<const Challenger> challengers) {
  std::vector<hal::ExecutableSpec> kernels;
  for (const Challenger& one : challengers) try {
      for (hal::ExecutableSpec& kernel : trainer::kernels_of(workload.view(), choice_of(one), device.info()))
        kernels.push_back(std::move(kernel));
    } catch (const std::exception&) {
    }
  try {
    device.load_all(kernels);
  } catch (const hal::DeviceLost&) {
    throw;
  } catch (const std::exception&) {
  }
}

// The search for the fastest variant of one call.
class Search {
 public:
  Search(hal::Device& device, const kernels::Catalog& catalog, const Workload& workload,
         const TuneOptions& options)
      : device_(device),
        workload_(workload),
        options_(options),
        standard_(selected(catalog, device.info(), workload)),
        inputs_(make_inputs(device, catalog, workload, 1)),
        checker_(workload, inputs_),
        ours_(device_subject(device, workload, standard_, inputs_, 1)) {}

  void time_standard(double seconds) {
    const MeasureOptions first{Buffers::warm, seconds, 1, 20, nullptr, options_.stopped};
    standard_seconds_ = fastest(measure({ours_.get()}, first)[0]);
  }
  // Times a challenger. Throws what it throws.
  void challenge(const Challenger& other, double seconds, TuningResult& result) {
    const auto theirs = subject(other);
    ++result.challengers;
    theirs->prepare(1);
    theirs->run();
    if (const std::string problem = checked(checker_, *theirs); !problem.empty()) {
      result.problems.push_back(other.name + " is " + problem);
      return;
    }
    constexpr double kHopeless = 3;  // a challenger that is so many times slower gets no further sample
    if (time([&] { theirs->run(); }) > kHopeless * std::max(standard_seconds_, 50e-6)) return;
    if (const Outcome outcome = compare(*theirs, seconds, 200); outcome.gain > 1)
      promising_.emplace_back(outcome.gain, &other);
  }

  // Measures the most promising challengers again. Returns the winner or nullptr, and sets the times.
  const Challenger* decide(double seconds, TuningResult& result) {
    std::stable_sort(promising_.begin(), promising_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    if (promising_.size() > kFinalists) promising_.resize(kFinalists);
    const Challenger* best = nullptr;
    result.seconds = result.standard_seconds = standard_seconds_;
    for (const auto& [gain, other] : promising_) {
      try {
        const auto theirs = subject(*other);
        const Outcome again = compare(*theirs, seconds, 400);
        if (again.gain <= result.gain) continue;
        best = other;
        result.gain = again.gain;
        result.seconds = again.theirs;
        result.standard_seconds = again.ours;
      } catch (const hal::DeviceLost&) {
        throw;
      } catch (const std::exception& error) {
        result.problems.push_back(other->name + " failed: " + error.what());
      }
    }
    return best;
  }

 private:
  std::unique_ptr<Subject> subject(const Challenger& other) {
    return device_subject(device_, workload_, choice_of(other), inputs_, 1);
  }
  static double fastest(const Samples& samples) {
    return *std::min_element(samples.seconds.begin(), samples.seconds.end());
  }

  struct Outcome {
    double theirs, ours;  // fastest samples
    double gain;          // 1 when adjacent samples do not confirm that of the fastest
  };
  Outcome compare(Subject& theirs, double seconds, int max_samples) {
    const std::vector<Samples> samples =
        measure({&theirs, ours_.get()},
                {Buffers::warm, seconds, 5, max_samples, nullptr, options_.stopped, 20, true});
    Outcome outcome{fastest(samples[0]), fastest(samples[1]), 1};
    standard_seconds_ = std::min(standard_seconds_, outcome.ours);
    const Ratio ratio = paired_ratio(samples[0].seconds, samples[1].seconds);
    const double gain = outcome.ours / outcome.theirs;
    if (gain > 1 + kMinGain && ratio.median > 1 + kMinGain && ratio.low > 1) outcome.gain = gain;
    return outcome;
  }

  hal::Device& device_;
  const Workload& workload_;
  const TuneOptions& options_;
  kernels::Choice standard_;
  std::vector<kernels::HostTensor> inputs_;
  Checker checker_;
  std::unique_ptr<Subject> ours_;
  double standard_seconds_ = 0;
  std::vector<std::pair<double, const Challenger*>> promising_;  // gain and challenger
};

}  // namespace

std::vector<TuningResult> tune(hal::Device& device, const kernels::Catalog& catalog,
                               const std::vector<Workload>& workloads, const TuneOptions& options,
                               trainer::Tuning& tuning, const std::function<void()>& save) {
  constexpr double kMaxSampleSeconds = 0.5;  // per side; more samples give no more information
  const auto stopped = [&] { return options.stopped && options.stopped(); };
  const Clock::time_point begin = Clock::now();
  const auto left = [&] { return options.budget - seconds_since(begin); };
  std::vector<const Workload*> order;
  int measurements = 0;
  for (const Workload& workload : workloads) {
    order.push_back(&workload);
    measurements +=
        kFinalists + static_cast<int>(challengers(device, catalog, workload,
                                                  selected(catalog, device.info(), workload), nullptr)
                                          .size());
  }
  std::stable_partition(order.begin(), order.end(),
                        [&](const Workload* w) { return !tuning.find(w->call()); });
  std::vector<TuningResult> results;
  int done = 0;
  // The seconds per side for the next measurement: the time that is left, divided by the measurements that
  // are left.
  const auto share = [&](double part) {
    return std::min(kMaxSampleSeconds, std::max(1e-3, part * left() / std::max(1, measurements - done) / 2));
  };
  for (const Workload* workload : order) {
    if (stopped() || left() <= 0) break;
    // A call that takes seconds must leave time for the others.
    constexpr double kMaxShareOfRest = 0.25;
    const double reserve = workload == order.back() ? 0 : (1 - kMaxShareOfRest) * left();
    const kernels::Choice standard = selected(catalog, device.info(), *workload);
    TuningResult& result = results.emplace_back();
    result.call = workload->call();
    result.shape = workload->shape;
    result.standard = result.winner = standard.variant->name;
    result.per_step = workload->per_step;
    const std::vector<Challenger> others =
        challengers(device, catalog, *workload, standard, options.inspector);
    const Challenger* best = nullptr;
    try {
      Search search(device, catalog, *workload, options);
      search.time_standard(share(0.2));
      const std::size_t together = std::max(1u, std::thread::hardware_concurrency());
      for (std::size_t i = 0; i < others.size(); ++i) {
        const Challenger& other = others[i];
        if (options.progress)
          options.progress(done, measurements,
                           fmt::format("{} {} {}", workload->contract->name, workload->shape, other.name));
        ++done;
        if (stopped() || left() <= reserve) {
          ++result.untried;
          continue;
        }
        if (i % together == 0 && trainer::has_submissions(device.info()))
          load_together(device, *workload,
                        std::span(others).subspan(i, std::min(together, others.size() - i)));
        try {
          search.challenge(other, share(1), result);
        } catch (const hal::DeviceLost&) {
          throw;
        } catch (const std::exception& error) {
          result.problems.push_back(other.name + " failed: " + error.what());
        }
      }
      best = search.decide(share(1), result);
      done += kFinalists;
      if (best) result.winner = best->name;
    } catch (const hal::DeviceLost&) {
      throw;
    } catch (const std::exception& error) {
      result.problems.push_back(result.standard + " failed: " + error.what());
      continue;
    }
    const trainer::TunedCall* known = tuning.find(result.call);
    const double known_gain = known && known->seconds > 0 ? known->standard_seconds / known->seconds : 1;
    if (result.untried > 0 && result.gain <= known_gain) continue;
    tuning.set(result.call,
               {best ? best->variant->name : result.standard, best ? best->fit.params : standard.params,
                result.seconds, result.standard, result.standard_seconds});
    save();
  }
  return results;
}

std::string to_text(const std::vector<TuningResult>& results) {
  std::vector<std::vector<std::string>> rows{
      {"call", "standard", "its time", "winner", "time", "gain", "per step"}};
  double before = 0, after = 0;
  for (const TuningResult& result : results) {
    const bool won = result.winner != result.standard;
    const auto times = static_cast<double>(std::max<std::int64_t>(1, result.per_step));
    before += result.standard_seconds * times;
    after += result.seconds * times;
    rows.push_back({shortened(result.call, 70), result.standard, seconds_text(result.standard_seconds),
                    won ? result.winner : "the same", won ? seconds_text(result.seconds) : "",
                    won ? fmt::format("{:.2f}x", result.gain) : "",
                    result.per_step > 0 ? std::to_string(result.per_step) : ""});
  }
  std::string text = table(rows, {true, true, false, true, false, false, false});
  for (const TuningResult& result : results) {
    for (const std::string& problem : result.problems)
      text += shortened(result.call, 60) + ": " + problem + "\n";
    if (result.untried > 0)
      text += fmt::format("{}: {} of its {} challengers were not tried: out of time\n",
                          shortened(result.call, 60), result.untried, result.untried + result.challengers);
  }
  return text + fmt::format("\n{} {}: {} before, {} after ({:.1f}% less)\n", results.size(),
                            results.size() == 1 ? "call" : "calls", seconds_text(before), seconds_text(after),
                            before > 0 ? 100 * (1 - after / before) : 0);
}

}  // namespace meshloom::bench
