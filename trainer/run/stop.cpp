#include "trainer/run/stop.h"

#include <time.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

namespace meshloom::trainer {
namespace {

struct Signal {
  int number;
  const char* name;
};
constexpr Signal kSignals[] = {{SIGINT, "SIGINT"},   {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"},
                               {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGXCPU, "SIGXCPU"},
                               {SIGALRM, "SIGALRM"}};
constexpr std::int64_t kSameRequest = 500;  // milliseconds

// A signal handler can reach nothing but globals.
volatile std::sig_atomic_t requested_by = 0;
volatile std::sig_atomic_t terminating = 0;  // INT or TERM has come
std::int64_t terminating_since = 0;          // milliseconds of the monotonic clock
struct sigaction before[std::size(kSignals)];

void remember(int number) {
  const int code = errno;
  if (number == SIGINT || number == SIGTERM) {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    const std::int64_t now = std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
    if (!terminating) {
      terminating = 1;
      terminating_since = now;
    } else if (now - terminating_since > kSameRequest) {
      std::signal(number, SIG_DFL);
      std::raise(number);  // acts when this handler returns
    }
  }
  if (requested_by == 0) requested_by = number;
  errno = code;
}

}  // namespace

StopSignals::StopSignals() {
  requested_by = 0;
  terminating = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  sigfillset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i].number, nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(kSignals[i].number, &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i].number, &before[i], nullptr);
}

bool StopSignals::requested() const { return requested_by != 0; }

std::string StopSignals::name() const {
  for (const Signal& signal : kSignals)
    if (signal.number == requested_by) return signal.name;
  return {};
}

}  // namespace meshloom::trainer
