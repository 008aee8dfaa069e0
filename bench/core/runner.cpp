#include "bench/core/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/measure/check.h"
#include "bench/measure/statistics.h"
#include "bench/measure/subject.h"
#include "bench/peers/peer.h"
#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/cli/command.h"

namespace meshloom::bench {
namespace {

bool is_all(const std::vector<std::string>& names) { return names.size() == 1 && names.front() == "all"; }

// Throws Error unless an op of the backend has a variant of this name.
void require_variant(const kernels::Catalog& catalog, const std::string& backend, const std::string& name,
                     const std::string& option) {
  std::set<std::string> known;
  for (const kernels::Contract* contract : catalog.contracts())
    for (const kernels::Variant* variant : catalog.variants(contract->name, backend))
      known.insert(variant->name);
  if (known.count(name)) return;
  std::vector<std::string> names(known.begin(), known.end());
  if (option == "--vs")
    for (const PeerInfo& peer : peers()) names.push_back(peer.name);
  else
    names.insert(names.begin(), "all");
  throw Error(option,
              fmt::format("must be one of {} on backend {}{}", hal::join(names), backend,
                          hal::suggestion(name, names)),
              "'" + name + "'");
}

Row blank_row(const Workload& workload, const hal::Device& device, const kernels::Choice& choice,
              bool selected, Buffers buffers) {
  Row row;
  row.op = workload.contract->name;
  row.shape = workload.shape;
  row.call = workload.call();
  row.label = workload.label;
  row.dtype = hal::to_string(workload.dtype());
  row.device = device.info().id;
  if (device.runs_as_another()) row.device += " as " + device.profile().name;
  row.variant = choice.variant->name;
  row.params = choice.params;
  row.selected = selected;
  row.buffers = to_string(buffers);
  row.per_step = workload.per_step;
  row.flops = workload.contract->flops(workload.view());
  row.bytes = workload.contract->bytes(workload.view());
  return row;
}

void fill(Row& row, const Samples& samples) {
  const Summary summary = summarize(samples.seconds);
  row.seconds = summary.median;
  row.fastest = summary.fastest;
  row.spread = summary.spread;
  row.samples = summary.samples;
  row.noisy = summary.noisy;
  row.calls_per_sample = samples.calls;
}

// Checks the outputs of the first and the last set.
CheckResult check_all(const Checker& checker, Subject& subject) {
  CheckResult result = checker.check(subject.outputs(0));
  if (subject.sets() > 1 && result.state == CheckResult::State::ok) {
    const double error = result.error;
    result = checker.check(subject.outputs(subject.sets() - 1));
    result.error = std::max(result.error, error);
  }
  return result;
}

double bytes_of(const std::vector<kernels::TensorType>& types) {
  double sum = 0;
  for (const kernels::TensorType& type : types) {
    double bytes = static_cast<double>(hal::size_of(type.dtype));
    for (std::int64_t dim : type.shape) bytes *= static_cast<double>(dim);
    sum += bytes;
  }
  return sum;
}

// To be called before anything is allocated: a system that overcommits memory would kill this process.
void require_memory(const Workload& workload, const kernels::Choice& choice, const hal::Device& device,
                    std::int64_t memory) {
  const double in = bytes_of(workload.inputs), out = bytes_of(workload.outputs);
  double needed = in + out + static_cast<double>(choice.workspace_bytes);
  // On the host the inputs, the results and the expected results are in the same memory.
  if (device.info().is_cpu) needed += in + 2 * out;
  if (memory > 0 && needed > static_cast<double>(memory))
    throw Error("memory",
                fmt::format("the {} of {} must hold the call's tensors",
                            trainer::bytes_text(static_cast<double>(memory)), device.info().id),
                trainer::bytes_text(needed) + " of them");
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

Runner::Runner(hal::Device& device, const hal::Registry& registry, const kernels::Catalog& catalog,
               RunOptions options)
    : device_(device), catalog_(catalog), options_(std::move(options)) {
  const std::string& backend = device.info().backend;
  if (!is_all(options_.variants))
    for (const std::string& name : options_.variants) require_variant(catalog, backend, name, "--variant");
  if (is_peer(options_.against))
    peer_ = open_peer(options_.against, device);
  else if (!options_.against.empty())
    require_variant(catalog, backend, options_.against, "--vs");
  ceilings_ = measure_ceilings(device, registry);
  if (options_.buffers == Buffers::cold) evictor_ = std::make_unique<Evictor>(device);
}

Runner::~Runner() = default;

std::string Runner::peer_version() const { return peer_ ? peer_->version() : ""; }

std::vector<Runner::Candidate> Runner::candidates(const Workload& workload,
                                                  std::vector<std::string>* refusals) const {
  const kernels::Choice standard = selected(catalog_, device_.info(), workload);
  std::vector<Candidate> result;
  const auto wanted = [&](const std::string& name) {
    return !options_.filter ||
           options_.filter->contained_in(
               fmt::format("{} {} {} {}", workload.contract->name, workload.shape, workload.label, name));
  };
  if (options_.variants.empty()) {
    if (wanted(standard.variant->name)) result.push_back({standard, true});
    return result;
  }
  for (const kernels::Variant* variant : catalog_.variants(workload.contract->name, device_.info().backend)) {
    const auto& names = options_.variants;
    const bool named = std::find(names.begin(), names.end(), variant->name) != names.end();
    if (!named && (!is_all(names) || variant->name == "reference")) continue;
    if (!wanted(variant->name)) continue;
    if (variant == standard.variant) {
      result.push_back({standard, true});
      continue;
    }
    const kernels::Fit fit = variant->answer(workload.view(), device_.info());
    if (fit.ok)
      result.push_back({{variant, fit.params, fit.workspace_bytes, 0}, false});
    else if (refusals && named)
      refusals->push_back(fmt::format("left out: {} {} {}: {}", workload.contract->name, workload.shape,
                                      variant->name, fit.reason));
  }
  return result;
}

std::vector<Row> Runner::measure_workload(const Workload& workload, const std::vector<Candidate>& candidates,
                                          double seconds,
                                          const std::function<void(const std::string&)>& before) {
  std::vector<Row> rows;
  std::vector<kernels::HostTensor> inputs;
  std::optional<Checker> checker;
  const std::int64_t memory =
      device_.runs_as_another() ? device_.profile().memory_bytes : device_.info().limits.memory_bytes;
  for (const Candidate& candidate : candidates) {
    if (stopped()) break;
    const kernels::Choice& choice = candidate.choice;
    if (before) before(choice.variant->name);
    Row row = blank_row(workload, device_, choice, candidate.selected, options_.buffers);
    try {
      require_memory(workload, choice, device_, memory);
      if (!checker) {
        inputs = make_inputs(device_, catalog_, workload, options_.seed);
        checker.emplace(workload, inputs);
      }
      const std::int64_t bytes = set_bytes(workload, 0);
      const int sets = options_.buffers == Buffers::rotating
                           ? rotating_sets(bytes, cache_bytes(device_.info()), memory)
                           : 1;
      const auto subject = device_subject(device_, workload, choice, inputs, sets);
      std::unique_ptr<Subject> other;
      if (peer_) {
        row.baseline_problem = peer_->refusal(workload);
        if (row.baseline_problem.empty()) other = peer_->subject(workload, inputs, sets);
      } else if (!options_.against.empty() && options_.against != choice.variant->name) {
        const kernels::Variant* variant =
            catalog_.find(workload.contract->name, device_.info().backend, options_.against);
        const kernels::Fit fit = variant ? variant->answer(workload.view(), device_.info())
                                         : kernels::Fit::no("the op has no variant " + options_.against);
        if (fit.ok)
          other =
              device_subject(device_, workload, {variant, fit.params, fit.workspace_bytes, 0}, inputs, sets);
        else
          row.baseline_problem = fit.reason;
      }
      std::vector<Subject*> subjects{subject.get()};
      if (other) subjects.push_back(other.get());
      const std::vector<Samples> samples =
          measure(subjects, {options_.buffers, seconds, 5, 400, evictor_.get(), options_.stopped});
      fill(row, samples[0]);
      if (other) {
        const Summary summary = summarize(samples[1].seconds);
        const Ratio ratio = paired_ratio(samples[0].seconds, samples[1].seconds);
        row.baseline = options_.against;
        row.baseline_seconds = summary.median;
        row.baseline_noisy = summary.noisy;
        row.ratio = ratio.median;
        row.ratio_spread = ratio.spread;
        const CheckResult theirs = check_all(*checker, *other);
        if (theirs.state == CheckResult::State::wrong)
          row.baseline_problem = "the result of " + options_.against + " is wrong: " + theirs.problem;
      }
      const CheckResult ours = check_all(*checker, *subject);
      row.check = to_string(ours.state);
      row.error = ours.error;
      row.covered = ours.covered;
      row.problem = one_line(ours.problem);
      compute_rates(row, ceilings_);
    } catch (const hal::DeviceLost&) {
      throw;
    } catch (const std::exception& error) {
      row.check = "failed";
      row.problem = one_line(error.what());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void Runner::run(const std::vector<Workload>& workloads, Report& report) {
  std::vector<std::vector<Candidate>> all;
  int total = 0, done = 0;
  for (const Workload& workload : workloads) {
    all.push_back(candidates(workload, &report.notes));
    total += static_cast<int>(all.back().size());
  }
  for (std::size_t w = 0; w < workloads.size() && !stopped(); ++w) {
    const auto before = [&](const std::string& variant) {
      if (options_.progress)
        options_.progress(done, total,
                          fmt::format("{} {} {}", workloads[w].contract->name, workloads[w].shape, variant));
      ++done;
    };
    for (Row& row : measure_workload(workloads[w], all[w], options_.seconds, before))
      report.rows.push_back(std::move(row));
  }
  report.stopped = stopped();
}

void Runner::measure_again(const std::vector<Workload>& workloads, const std::vector<std::size_t>& rows,
                           Report& report) {
  for (std::size_t index : rows) {
    Row& row = report.rows.at(index);
    for (const Workload& workload : workloads) {
      if (stopped() || workload.call() != row.call) continue;
      std::vector<Candidate> chosen;
      for (Candidate& candidate : candidates(workload, nullptr))
        if (candidate.choice.variant->name == row.variant) chosen.push_back(std::move(candidate));
      for (Row& fresh : measure_workload(workload, chosen, 2 * options_.seconds, {})) {
        const bool wrong = row.check == "wrong" || row.check == "failed";
        if (!wrong && fresh.seconds > 0 && fresh.seconds < row.seconds) row = std::move(fresh);
      }
      break;
    }
  }
}

}  // namespace meshloom::bench
