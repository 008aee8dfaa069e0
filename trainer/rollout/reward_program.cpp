#include "trainer/rollout/reward_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMilliseconds = 100;               // how soon an interruption is seen
constexpr std::size_t kMaxLine = 4096;               // bytes of a reward
constexpr auto kPatience = std::chrono::seconds(2);  // for a program whose input has ended

std::vector<std::string> environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable) variables.emplace_back(*variable);
  if (!std::getenv("PYTHONUNBUFFERED")) variables.emplace_back("PYTHONUNBUFFERED=1");
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::string status_text(int status) {
  return WIFSIGNALED(status) ? fmt::format("it was ended by {}", ::strsignal(WTERMSIG(status)))
                             : fmt::format("it ended with the exit code {}", WEXITSTATUS(status));
}

}  // namespace

RewardProgram::RewardProgram(std::string command, double seconds)
    : command_(std::move(command)), seconds_(seconds) {}

RewardProgram::~RewardProgram() { end(); }

std::optional<int> RewardProgram::end() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  if (process_ < 0) return {};
  int status = 0;
  const auto until = Clock::now() + kPatience;
  pid_t ended = 0;
  while ((ended = ::waitpid(process_, &status, WNOHANG)) == 0 && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  // The shell may have started more than one program: they are a group.
  ::kill(-process_, SIGKILL);
  if (ended == 0) ::waitpid(process_, &status, 0);
  return std::exchange(process_, -1) == ended ? std::optional(status) : std::nullopt;
}

void RewardProgram::fail(const std::string& rule, const std::string& found) const {
  throw Error("--reward " + shown(command_), rule, found);
}

void RewardProgram::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail("the program must get a pipe", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  // A group of its own, so that Ctrl-C stops the run and not the program in front of it; and signals as they are by default.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> words{"sh", "-c", command_}, variables = environment();
  const int failed = ::posix_spawn(&process_, "/bin/sh", &actions, &attributes, pointers(words).data(),
                                   pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  socket_ = ends[0];
  if (failed != 0) {
    process_ = -1;
    fail("/bin/sh must start", std::strerror(failed));
  }
  ::fcntl(socket_, F_SETFL, ::fcntl(socket_, F_GETFL) | O_NONBLOCK);
}

void RewardProgram::fail_ended() {
  const std::optional<int> status = end();
  fail("must run as long as the run does, and write a reward for each line that it reads",
       status ? status_text(*status) : "it closed its input or output");
}

void RewardProgram::send() {
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(socket_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) fail_ended();
    unsent_.erase(0, static_cast<std::size_t>(sent));
  }
}

void RewardProgram::receive() {
  char bytes[4096];
  const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
  if (count < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return;
  if (count <= 0) fail_ended();
  received_.append(bytes, static_cast<std::size_t>(count));
}

double RewardProgram::reward_of(std::string_view line) const {
  constexpr std::string_view kBlank = " \t\r";
  std::string_view text = line;
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlank) + 1);
  double reward = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), reward);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(reward))
    fail("must write a finite number on each line, and nothing else on standard output", shown(line));
  return reward;
}

std::vector<double> RewardProgram::rewards(std::span<const std::string> lines,
                                           const std::function<bool()>& interrupted) {
  if (process_ < 0) start();
  for (const std::string& line : lines) unsent_ += line + "\n";
  std::vector<double> rewards;
  Clock::time_point moved = Clock::now();
  while (true) {
    for (std::size_t end; (end = received_.find('\n')) != std::string::npos; received_.erase(0, end + 1)) {
      if (rewards.size() == lines.size()) fail("must write one line for each line that it reads", "more");
      rewards.push_back(reward_of(std::string_view(received_).substr(0, end)));
      moved = Clock::now();
    }
    if (received_.size() > kMaxLine) reward_of(received_);
    if (rewards.size() == lines.size()) return rewards;
    if (interrupted()) return {};
    if (std::chrono::duration<double>(Clock::now() - moved).count() > seconds_)
      fail(fmt::format("must write a reward within {} s of the one before (--reward-seconds), and flush its "
                       "output after each "
                       "line",
                       seconds_),
           fmt::format("{} of {}", rewards.size(), lines.size()));
    pollfd socket{socket_, static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
    if (::poll(&socket, 1, kPollMilliseconds) <= 0) continue;
    // What the program wrote before it ended says more than that it ended.
    if ((socket.revents & (POLLIN | POLLHUP | POLLERR)) != 0)
      receive();
    else if ((socket.revents & POLLOUT) != 0)
      send();
  }
}

}  // namespace meshloom::trainer
