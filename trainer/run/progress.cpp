#include "trainer/run/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace meshloom::trainer {
namespace {

constexpr int kBar = 24;
constexpr double kSecondsBetweenLines = 2;

bool is_evaluated(const StepRecord& record) { return record.eval_loss || record.eval_reward; }

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e9)));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

void ProgressNotes::operator()(std::int64_t done) {
  const Clock::time_point now = Clock::now();
  if (done >= count_ || now - said_ <= std::chrono::duration<double>(kSecondsBetweenLines)) return;
  said_ = now;
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  note_(fmt::format("{} of {} {}, {} left", done, count_, what_,
                    duration_text(seconds / static_cast<double>(done) * static_cast<double>(count_ - done))));
}

Progress::Progress(std::int64_t first, std::int64_t last)
    : first_(first), last_(last), terminal_(::isatty(STDOUT_FILENO) != 0) {}

std::string Progress::text(const StepRecord& record) const {
  std::string line = fmt::format("step {:>{}}/{}  loss {:.4f}", record.step, std::to_string(last_).size(),
                                 last_, record.loss);
  if (record.reward) line += fmt::format("  reward {:.4f}", *record.reward);
  if (const auto& evaluated = record.eval_loss ? record.eval_loss : record.eval_reward; evaluated)
    line += fmt::format("  eval {:.4f}", *evaluated);
  line += fmt::format("  {:.0f} tok/s", record.tokens_per_s);
  if (record.mfu > 0) line += fmt::format("  MFU {:.1f} %", 100 * record.mfu);
  line += fmt::format("  {:.3f} s  {:.1f} MiB  ETA {}", record.seconds,
                      static_cast<double>(record.peak_bytes) / (1 << 20),
                      duration_text(smooth_seconds_ * static_cast<double>(last_ - record.step)));
  return line;
}

void Progress::step(const StepRecord& record) {
  smooth_seconds_ = smooth_seconds_ == 0 ? record.seconds : 0.9 * smooth_seconds_ + 0.1 * record.seconds;
  if (!terminal_) {
    const auto now = std::chrono::steady_clock::now();
    const bool edge = record.step == first_ + 1 || record.step == last_ || is_evaluated(record);
    if (!edge && std::chrono::duration<double>(now - said_).count() < kSecondsBetweenLines) return;
    said_ = now;
    fmt::print("{}\n", text(record));
    std::fflush(stdout);
    return;
  }
  const std::int64_t done = last_ > 0 ? record.step * kBar / last_ : 0;
  std::string bar(static_cast<std::size_t>(done), '=');
  if (done < kBar) bar += '>';
  bar.resize(kBar, ' ');
  fmt::print("\r[{}] {}\033[K", bar, text(record));
  bar_ = true;
  if (is_evaluated(record)) finish();  // lines with an evaluation stay on the terminal
  std::fflush(stdout);
}

void Progress::say(const std::string& line) {
  finish();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Progress::finish() {
  if (bar_) fmt::print("\n");
  bar_ = false;
}

}  // namespace meshloom::trainer
