#include "trainer/execute/compile_progress.h"

#include <utility>

namespace meshloom::trainer {

hal::LoadProgress compile_progress(std::function<void(const std::string&)> say, double first, double next) {
  using Clock = std::chrono::steady_clock;
  return [say = std::move(say), due = first, next, begin = Clock::now()](std::size_t done,
                                                                         std::size_t all) mutable {
    const double now = std::chrono::duration<double>(Clock::now() - begin).count();
    if (now < due || done == all) return;
    due = now + next;
    say("compiling kernels " + std::to_string(done) + "/" + std::to_string(all));
  };
}

}  // namespace meshloom::trainer
