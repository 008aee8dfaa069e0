#include "bench/core/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/core/table.h"
#include "bench/measure/statistics.h"

namespace meshloom::bench {

void record(const StepReport& report, trainer::MeasuredTimes& times) {
  std::map<std::string, std::pair<const StepCall*, std::vector<double>>> samples;
  std::vector<double> sums;  // of the steps that were timed call by call
  double count = 0;
  for (const StepCall& call : report.calls) {
    const auto repeated = static_cast<double>(call.times);
    auto& [first, seconds] = samples[call.key];
    if (!first) first = &call;
    seconds.insert(seconds.end(), call.seconds.begin(), call.seconds.end());
    sums.resize(std::max(sums.size(), call.seconds.size()));
    for (std::size_t s = 0; s < call.seconds.size(); ++s) sums[s] += repeated * call.seconds[s];
    count += repeated;
  }
  double of_medians = 0;
  for (const StepCall& call : report.calls)
    of_medians += static_cast<double>(call.times) * median(samples.at(call.key).second);
  const double sum = median(sums), scale = of_medians > 0 ? sum / of_medians : 1;
  for (auto& [key, sample] : samples) {
    trainer::MeasuredCall measured = sample.first->measured;
    measured.seconds = scale * median(sample.second);
    if (measured.seconds > 0) times.set(key, std::move(measured));
  }
  if (const double wall = median(report.wall); wall > 0 && sum > 0)
    times.set_step(report.recipe, {wall, sum, count});
}

double median_error(const std::vector<PredictedStep>& steps, double (PredictedStep::*error)() const) {
  std::vector<double> errors;
  for (const PredictedStep& step : steps) errors.push_back(std::abs((step.*error)()));
  return median(errors);
}

std::string to_text(const std::vector<PredictedStep>& steps) {
  std::vector<std::vector<std::string>> rows{
      {"step", "took", "predicted", "error", "from others", "error", "similar", "fitted"}};
  for (const PredictedStep& step : steps) {
    const auto part = [&](double seconds) {
      return fmt::format("{:.0f}%", step.held_out > 0 ? 100 * seconds / step.held_out : 0);
    };
    rows.push_back({step.name, seconds_text(step.wall), seconds_text(step.measured),
                    fmt::format("{:+.1f}%", 100 * step.measured_error()), seconds_text(step.held_out),
                    fmt::format("{:+.1f}%", 100 * step.held_out_error()), part(step.similar),
                    part(step.fitted)});
  }
  return table(rows, {true, false, false, false, false, false, false, false}) +
         fmt::format(
             "\nmedian error {:.1f}% from the times of its own calls, {:.1f}% from those of the others\n",
             100 * median_error(steps, &PredictedStep::measured_error),
             100 * median_error(steps, &PredictedStep::held_out_error));
}

std::string to_json(const std::vector<PredictedStep>& steps, const Header& header) {
  nlohmann::ordered_json json;
  json["schema"] = "meshloom-predict/1";
  for (const auto& [name, text] : header.fields) json["header"][name] = text;
  json["steps"] = nlohmann::ordered_json::array();
  for (const PredictedStep& step : steps)
    json["steps"].push_back({{"name", step.name},
                             {"seconds", step.wall},
                             {"predicted", step.measured},
                             {"predicted_from_others", step.held_out},
                             {"similar", step.similar},
                             {"fitted", step.fitted}});
  json["median_error"] = median_error(steps, &PredictedStep::measured_error);
  json["median_error_from_others"] = median_error(steps, &PredictedStep::held_out_error);
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace meshloom::bench
