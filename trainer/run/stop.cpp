#include "trainer/run/stop.h"

#include <time.h>

#include <atomic>
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

// A signal handler can reach nothing but globals; ranks that are threads read them while it runs on another thread.
std::atomic<int> requested_by = 0;
std::atomic<bool> terminating = false;            // INT or TERM has come
std::atomic<std::int64_t> terminating_since = 0;  // milliseconds of the monotonic clock
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);
struct sigaction before[std::size(kSignals)];

void remember(int number) {
  const int code = errno;
  if (number == SIGINT || number == SIGTERM) {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    const std::int64_t now = std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
    if (!terminating) {
      terminating_since = now;
      terminating = true;
    } else if (now - terminating_since > kSameRequest) {
      std::signal(number, SIG_DFL);
      std::raise(number);  // acts when this handler returns
    }
  }
  int none = 0;
  requested_by.compare_exchange_strong(none, number);
  errno = code;
}

}  // namespace

StopSignals::StopSignals() {
  requested_by = 0;
  terminating = false;
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
