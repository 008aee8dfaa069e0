#include "trainer/run/stop.h"

#include <csignal>

namespace meshloom::trainer {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t stop_requested = 0;

void remember(int) { stop_requested = 1; }

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  // The handler takes itself out: the second signal acts as if nobody listened.
  action.sa_flags = static_cast<int>(SA_RESTART | (handler == SIG_DFL ? 0 : SA_RESETHAND));
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  stop_requested = 0;
  install(remember);
}

StopSignals::~StopSignals() { install(SIG_DFL); }

bool StopSignals::requested() const { return stop_requested != 0; }

}  // namespace meshloom::trainer
