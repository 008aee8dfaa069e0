#include "tests/faults/file_tracer.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {

std::vector<std::string> TracedRun::errors() const { return Outcome{code, out, err}.errors(); }

#if !defined(__x86_64__)

std::string why_not_traced() { return "system calls are traced on x86-64 only"; }
TracedRun run_traced(const std::vector<std::string>&, const std::string&, const FileFault&) {
  throw std::logic_error(why_not_traced());
}

#else

namespace {

// Where a call's path stands among its arguments, or the descriptor it works on.
enum class Operand { descriptor, path, path_at, two_paths, two_paths_at, link_path, link_path_at };

struct Operation {
  const char* name;
  Operand operand;
  bool needs_room = true;  // fails on a full disk
};

const std::map<long, Operation>& operations() {
  static const std::map<long, Operation> kAll{
      {SYS_open, {"open", Operand::path}},
      {SYS_openat, {"open", Operand::path_at}},
      {SYS_creat, {"open", Operand::path}},
      {SYS_write, {"write", Operand::descriptor}},
      {SYS_pwrite64, {"write", Operand::descriptor}},
      {SYS_writev, {"write", Operand::descriptor}},
      {SYS_ftruncate, {"truncate", Operand::descriptor}},
      {SYS_fallocate, {"allocate", Operand::descriptor}},
      {SYS_fsync, {"sync", Operand::descriptor}},
      {SYS_fdatasync, {"sync", Operand::descriptor}},
      {SYS_rename, {"rename", Operand::two_paths, false}},
      {SYS_renameat, {"rename", Operand::two_paths_at, false}},
      {SYS_renameat2, {"rename", Operand::two_paths_at, false}},
      {SYS_unlink, {"remove", Operand::path, false}},
      {SYS_unlinkat, {"remove", Operand::path_at, false}},
      {SYS_rmdir, {"remove", Operand::path, false}},
      {SYS_mkdir, {"mkdir", Operand::path}},
      {SYS_mkdirat, {"mkdir", Operand::path_at}},
      {SYS_link, {"link", Operand::two_paths}},
      {SYS_linkat, {"link", Operand::two_paths_at}},
      {SYS_symlink, {"link", Operand::link_path}},
      {SYS_symlinkat, {"link", Operand::link_path_at}},
  };
  return kAll;
}

// Stops at the calls above, lets all others run at full speed.
std::vector<sock_filter> filter_program() {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const auto& [number, operation] : operations()) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return program;
}

std::string link_target(const std::string& link) {
  std::array<char, PATH_MAX> buffer;
  const ssize_t length = ::readlink(link.c_str(), buffer.data(), buffer.size());
  return length < 0 ? std::string() : std::string(buffer.data(), static_cast<std::size_t>(length));
}

std::string descriptor_path(pid_t thread, long descriptor) {
  const std::string process = "/proc/" + std::to_string(thread);
  return link_target(static_cast<int>(descriptor) == AT_FDCWD
                         ? process + "/cwd"
                         : process + "/fd/" + std::to_string(descriptor));
}

std::string text_at(pid_t thread, unsigned long address) {
  std::string text;
  while (text.size() < PATH_MAX) {
    char part[64];
    // A string may end just before a page that is not there: up to the page's end at a time.
    const std::size_t room = std::min<std::size_t>(sizeof part, 4096 - address % 4096);
    iovec local{part, room}, remote{reinterpret_cast<void*>(address), room};
    const ssize_t got = ::process_vm_readv(thread, &local, 1, &remote, 1, 0);
    if (got <= 0) break;
    if (const void* end = std::memchr(part, 0, static_cast<std::size_t>(got)))
      return text.append(part, static_cast<std::size_t>(static_cast<const char*>(end) - part));
    text.append(part, static_cast<std::size_t>(got));
    address += static_cast<unsigned long>(got);
  }
  return text;
}

std::string path_of(pid_t thread, long folder, unsigned long address) {
  const std::filesystem::path path = text_at(thread, address);
  return (path.is_absolute() ? path : descriptor_path(thread, folder) / path).lexically_normal().string();
}

class Tracer {
 public:
  Tracer(std::string folder, const FileFault& fault) : folder_(std::move(folder)), fault_(fault) {}

  TracedRun run(const std::vector<std::string>& arguments) {
    const Scratch scratch;
    const std::string out = scratch.path("out"), err = scratch.path("err");
    process_ = ::fork();
    if (process_ < 0) throw std::runtime_error("fork failed");
    if (process_ == 0) start(arguments, out, err);
    int status = 0;
    ::waitpid(process_, &status, __WALL);
    if (!WIFSTOPPED(status)) throw std::runtime_error("the traced program did not start");
    ::ptrace(PTRACE_SETOPTIONS, process_, 0,
             PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                 PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
    ::ptrace(PTRACE_CONT, process_, 0, 0);
    follow();
    run_.out = read_text(out);
    run_.err = read_text(err);
    return run_;
  }

 private:
  [[noreturn]] static void start(const std::vector<std::string>& arguments, const std::string& out,
                                 const std::string& err) {
    std::vector<char*> words;
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    const int in_fd = ::open("/dev/null", O_RDONLY), out_fd = ::open(out.c_str(), O_CREAT | O_WRONLY, 0600),
              err_fd = ::open(err.c_str(), O_CREAT | O_WRONLY, 0600);
    ::dup2(in_fd, 0);
    ::dup2(out_fd, 1);
    ::dup2(err_fd, 2);
    ::ptrace(PTRACE_TRACEME, 0, 0, 0);
    ::raise(SIGSTOP);
    std::vector<sock_filter> filter = filter_program();
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
      ::execv(words[0], words.data());
    ::_exit(127);
  }

  // Until the process is gone. Threads stop one at a time and are let go on at once.
  void follow() {
    for (;;) {
      int status = 0;
      const pid_t thread = ::waitpid(-1, &status, __WALL);
      if (thread < 0) {
        if (errno == EINTR) continue;
        return;
      }
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        if (thread == process_) run_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        continue;  // until no thread is left to wait for
      }
      const int signal = WSTOPSIG(status), event = status >> 16;
      if (event == PTRACE_EVENT_SECCOMP)
        enter(thread);
      else if (signal == (SIGTRAP | 0x80))
        leave(thread);
      else  // a new thread's first stop, another event, or a signal to be delivered
        ::ptrace(PTRACE_CONT, thread, 0, event != 0 || signal == SIGSTOP || signal == SIGTRAP ? 0 : signal);
    }
  }

  // What the call works on, below the folder; none where that is not the folder's or nothing is changed.
  std::optional<std::string> target(pid_t thread, const Operation& operation,
                                    const user_regs_struct& r) const {
    std::vector<std::string> paths;
    const long number = static_cast<long>(r.orig_rax);
    const auto fd = [](unsigned long long value) { return static_cast<long>(static_cast<int>(value)); };
    switch (operation.operand) {
      case Operand::descriptor:
        paths = {descriptor_path(thread, fd(r.rdi))};
        break;
      case Operand::path:
        paths = {path_of(thread, AT_FDCWD, r.rdi)};
        break;
      case Operand::path_at:
        paths = {path_of(thread, fd(r.rdi), r.rsi)};
        break;
      case Operand::two_paths:
        paths = {path_of(thread, AT_FDCWD, r.rsi), path_of(thread, AT_FDCWD, r.rdi)};
        break;
      case Operand::two_paths_at:
        paths = {path_of(thread, fd(r.rdx), r.r10), path_of(thread, fd(r.rdi), r.rsi)};
        break;
      case Operand::link_path:
        paths = {path_of(thread, AT_FDCWD, r.rsi)};
        break;
      case Operand::link_path_at:
        paths = {path_of(thread, fd(r.rsi), r.rdx)};
        break;
    }
    if (number == SYS_open || number == SYS_openat) {
      const unsigned long long flags = number == SYS_open ? r.rsi : r.rdx;
      if ((flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC))) return {};
    }
    for (const std::string& path : paths)
      if (path == folder_ || path.starts_with(folder_ + "/"))
        return path == folder_ ? "." : path.substr(folder_.size() + 1);
    return {};
  }

  void enter(pid_t thread) {
    user_regs_struct registers{};
    ::ptrace(PTRACE_GETREGS, thread, 0, &registers);
    const auto found = operations().find(static_cast<long>(registers.orig_rax));
    const std::optional<std::string> path =
        found == operations().end() ? std::nullopt : target(thread, found->second, registers);
    if (!path) {
      ::ptrace(PTRACE_CONT, thread, 0, 0);
      return;
    }
    const int index = static_cast<int>(run_.operations.size());
    run_.operations.push_back(std::string(found->second.name) + " " + *path);
    using Kind = FileFault::Kind;
    const bool here = index == fault_.at;
    const bool fails = (fault_.kind == Kind::fail && here) ||
                       (fault_.kind == Kind::fail_from && index >= fault_.at && found->second.needs_room);
    if (here || fails) run_.injected = run_.injected || fault_.kind != Kind::none;
    if (here && fault_.kind == Kind::kill_before) {
      ::kill(process_, SIGKILL);
      return;
    }
    if (fails) {
      registers.orig_rax = static_cast<unsigned long long>(-1);  // no call
      ::ptrace(PTRACE_SETREGS, thread, 0, &registers);
      failing_[thread] = true;
    } else if (here && (fault_.kind == Kind::kill_after || fault_.kind == Kind::kill_torn)) {
      const long number = static_cast<long>(registers.orig_rax);
      if (fault_.kind == Kind::kill_torn && (number == SYS_write || number == SYS_pwrite64)) {
        registers.rdx /= 2;
        ::ptrace(PTRACE_SETREGS, thread, 0, &registers);
      }
      failing_[thread] = false;
    } else {
      ::ptrace(PTRACE_CONT, thread, 0, 0);
      return;
    }
    ::ptrace(PTRACE_SYSCALL, thread, 0, 0);  // stops again where the call returns
  }

  void leave(pid_t thread) {
    const auto it = failing_.find(thread);
    if (it != failing_.end() && it->second) {
      user_regs_struct registers{};
      ::ptrace(PTRACE_GETREGS, thread, 0, &registers);
      registers.rax = static_cast<unsigned long long>(-static_cast<long long>(fault_.error));
      ::ptrace(PTRACE_SETREGS, thread, 0, &registers);
    } else if (it != failing_.end()) {
      ::kill(process_, SIGKILL);
      failing_.erase(it);
      return;
    }
    failing_.erase(thread);
    ::ptrace(PTRACE_CONT, thread, 0, 0);
  }

  std::string folder_;
  FileFault fault_;
  pid_t process_ = -1;
  TracedRun run_;
  std::map<pid_t, bool> failing_;  // by thread inside a call that is interfered with: fails (else: is killed)
};

}  // namespace

std::string why_not_traced() {
  const TracedRun run = run_traced({"/bin/true"}, "/nowhere");
  return run.code == 0 ? "" : "ptrace or seccomp is not allowed here";
}

TracedRun run_traced(const std::vector<std::string>& arguments, const std::string& folder,
                     const FileFault& fault) {
  return Tracer(folder, fault).run(arguments);
}

#endif

}  // namespace meshloom::tests
