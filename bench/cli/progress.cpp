#include "bench/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "hal/standard_error.h"

namespace meshloom::bench {
namespace {

constexpr double kEvery = 20;  // seconds between lines when stderr is no terminal

std::string duration(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  return whole < 60 ? fmt::format("{} s", whole) : fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (!quiet_ && terminal_) hal::print_error("\r\x1b[K");
}

void Progress::say(int done, int total, const std::string& what) {
  if (quiet_ || total < 2) return;
  if (!terminal_ && seconds_since(said_) < kEvery) return;
  said_ = Clock::now();
  std::string text =
      fmt::format("[{}/{}] {}", done + 1, total, what.size() > 70 ? what.substr(0, 67) + "..." : what);
  if (done > 0) text += fmt::format(", {} left", duration(seconds_since(begin_) / done * (total - done)));
  hal::print_error((terminal_ ? "\r\x1b[K" : "") + text + (terminal_ ? "" : "\n"));
}

}  // namespace meshloom::bench
