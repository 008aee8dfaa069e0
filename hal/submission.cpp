#include "hal/submission.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hal/environment.h"

namespace meshloom::hal {
namespace {

// A prediction may be wrong by this factor before a submission counts as hung.
constexpr double kWaitPerPredicted = 100;
constexpr double kWaitForFirstRun = 10;
// One command is cut into at most so many pieces, because each is a submission at least.
constexpr double kMaxPiecesOfOne = 256;
// Commands of unknown time are cut after so many.
constexpr std::size_t kMaxPieces = 1000;
// A list is cut anew when a submission takes longer than this many budgets, or when it has more submissions than this factor
// times what its time needs.
constexpr double kTooLong = 1.5, kTooMany = 3;

}  // namespace

SubmissionSettings SubmissionSettings::from_environment() {
  SubmissionSettings settings;
  settings.budget = 1e-3 * number_from_environment("MESHLOOM_SUBMISSION_MS", 1e3 * settings.budget);
  settings.wait_limit = number_from_environment("MESHLOOM_WAIT_SECONDS", settings.wait_limit);
  return settings;
}

double SubmissionSettings::limit_of(double predicted, bool ran_before) const {
  return wait_limit > 0 ? (ran_before ? 1 : kWaitForFirstRun) * (wait_limit + kWaitPerPredicted * predicted)
                        : -1;
}

std::string waited_text(double limit) {
  return "it was waited for " + std::to_string(static_cast<int>(limit)) + " s (MESHLOOM_WAIT_SECONDS)";
}

std::vector<Submission> cut_into_submissions(std::span<const CommandCost> commands, double budget) {
  std::vector<Submission> submissions;
  bool open = false;
  const auto add = [&](Piece piece, double seconds) {
    if (open) {
      const Submission& last = submissions.back();
      open = budget <= 0 || (last.seconds + seconds <= budget && last.pieces.size() < kMaxPieces);
    }
    if (!open) submissions.emplace_back();
    open = true;
    submissions.back().pieces.push_back(piece);
    submissions.back().seconds += seconds;
  };
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const CommandCost& command = commands[i];
    const std::uint32_t parts = std::max(command.parts, 1u);
    if (command.alone) {
      open = false;
      add({i, 0, parts}, command.seconds);
      open = false;
      continue;
    }
    // Parts of one piece: as many as the budget has room for.
    double per = parts;
    if (budget > 0 && command.seconds > budget)
      per =
          std::max({1.0, std::floor(parts * (budget / command.seconds)), std::ceil(parts / kMaxPiecesOfOne)});
    const auto step = static_cast<std::uint32_t>(per);
    for (std::uint32_t begin = 0; begin < parts;) {
      const std::uint32_t count = std::min(step, parts - begin);
      add({i, begin, count}, command.seconds * count / parts);
      begin += count;
    }
  }
  return submissions;
}

void ListCosts::predict(double seconds) {
  double sum = 0;
  for (const double weight : weights_) sum += weight;
  const std::size_t first = commands_.size() - weights_.size();
  for (std::size_t i = 0; i < weights_.size(); ++i)
    if (sum > 0) commands_[first + i].seconds = predicted_ * weights_[i] / sum;
  weights_.clear();
  predicted_ = seconds;
}

void ListCosts::add(double weight, std::uint32_t parts) {
  commands_.push_back({0, parts, false});
  weights_.push_back(weight);
}

void ListCosts::add_alone() {
  commands_.push_back({0, 1, true});
  weights_.push_back(0);
}

bool ListCosts::learn(std::span<const Submission> submissions, std::span<const double> seconds,
                      double budget) {
  if (budget <= 0 || submissions.size() != seconds.size()) return false;
  std::vector<double> measured(commands_.size(), 0);
  std::vector<std::uint32_t> parts(commands_.size(), 0);
  double total = 0, least = 1;  // of all submissions, and their number if each took its whole budget
  bool too_long = false, all_known = true;
  for (std::size_t s = 0; s < submissions.size(); ++s) {
    const Submission& submission = submissions[s];
    if (commands_[submission.pieces.front().command].alone) {
      least += 2;  // it ends one submission, and another one begins behind it
      continue;
    }
    if (seconds[s] < 0) {
      all_known = false;
      continue;
    }
    // Where nothing was predicted, all of a submission's commands count alike.
    const auto weight = [&](const Piece& piece) {
      const CommandCost& command = commands_[piece.command];
      return submission.seconds > 0 ? command.seconds * piece.count / std::max(command.parts, 1u) : 1.0;
    };
    double weights = 0;
    std::uint64_t cuttable = 0;
    for (const Piece& piece : submission.pieces) {
      weights += weight(piece);
      cuttable += piece.count;
    }
    for (const Piece& piece : submission.pieces) {
      if (weights > 0) measured[piece.command] += seconds[s] * weight(piece) / weights;
      parts[piece.command] += piece.count;
    }
    total += seconds[s];
    too_long = too_long || (seconds[s] > kTooLong * budget && cuttable > 1);
  }
  for (std::size_t i = 0; i < commands_.size(); ++i) {
    if (commands_[i].alone || parts[i] != std::max(commands_[i].parts, 1u)) continue;
    // One measurement alone may have been disturbed by other programs.
    commands_[i].seconds = learned_ ? 0.5 * (commands_[i].seconds + measured[i]) : measured[i];
  }
  learned_ = true;
  least += total / budget + static_cast<double>(commands_.size()) / kMaxPieces;
  return too_long || (all_known && static_cast<double>(submissions.size()) > kTooMany * least);
}

bool ListCosts::learn(std::span<const Submission> submissions, const SubmissionLog& log,
                      const SubmissionSettings& settings) {
  std::vector<double> seconds;
  for (const SubmissionLog::Entry& entry : log.entries) seconds.push_back(entry.measured);
  const bool tells = !settings.compiles_late || ran_before_;
  ran_before_ = true;
  return tells && learn(submissions, seconds, settings.budget);
}

std::string SubmissionLog::describe(std::size_t index) const {
  const Entry& entry = entries.at(index);
  return "submission " + std::to_string(index + 1) + " of " + std::to_string(entries.size()) + " of list '" +
         list + "', " +
         (entry.first == entry.last ? "'" + entry.last + "'"
                                    : "from '" + entry.first + "' to '" + entry.last + "'");
}

std::shared_ptr<SubmissionLog> log_of(std::string list, std::span<const Submission> submissions,
                                      const std::function<std::string(std::size_t)>& label) {
  auto log = std::make_shared<SubmissionLog>();
  log->list = std::move(list);
  for (const Submission& submission : submissions) {
    SubmissionLog::Entry& entry = log->entries.emplace_back();
    entry.predicted = submission.seconds;
    for (const Piece& piece : submission.pieces) {
      const std::string text = label(piece.command);
      if (text.empty()) continue;
      if (entry.first.empty()) entry.first = text;
      entry.last = text;
    }
  }
  return log;
}

}  // namespace meshloom::hal
