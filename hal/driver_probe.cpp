#include "hal/driver_probe.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "hal/cache/disk_cache.h"
#include "hal/environment.h"

extern char** environ;

namespace meshloom::hal {
namespace {

constexpr const char* kKind = "drivers";
constexpr std::int64_t kKeptSeconds = 3600;  // of what failed

struct Failure {
  InstalledDriver driver;
  std::string reason;
};

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Everything that the answer of the drivers may depend on, as far as it is cheap to know.
std::string key_of(const std::string& backend, const std::vector<InstalledDriver>& drivers) {
  std::string key = "driver probe 1\n" + backend + "\n", boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  key += boot + "\n";
  for (const InstalledDriver& driver : drivers) {
    struct stat info {};
    ::stat(driver.file.c_str(), &info);
    key += driver.file + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) +
           "." + std::to_string(info.st_mtim.tv_nsec) + "\n";
  }
  for (char** variable = environ; *variable; ++variable)
    for (const char* prefix : {"VK_", "OCL_", "OPENCL_", "LD_", "POCL_", "MESA_", "RADV_", "RUSTICL_"})
      if (std::strncmp(*variable, prefix, std::strlen(prefix)) == 0) key += std::string(*variable) + "\n";
  return key;
}

// One line per driver that fails, "FILE<tab>REASON", below the time.
std::optional<std::vector<Failure>> load(const DiskCache& cache, const std::string& key,
                                         const std::vector<InstalledDriver>& drivers) {
  const auto stored = cache.load(kKind, key);
  if (!stored) return std::nullopt;
  std::istringstream text(std::string(reinterpret_cast<const char*>(stored->data()), stored->size()));
  std::int64_t then = 0;
  text >> then;
  text.ignore();
  std::vector<Failure> failures;
  for (std::string line; std::getline(text, line);) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) return std::nullopt;
    const auto found = std::find_if(drivers.begin(), drivers.end(), [&](const InstalledDriver& driver) {
      return driver.file == line.substr(0, tab);
    });
    if (found == drivers.end()) return std::nullopt;
    failures.push_back({*found, line.substr(tab + 1)});
  }
  if (!failures.empty() && (now() < then || now() > then + kKeptSeconds)) return std::nullopt;
  return failures;
}

void store(const DiskCache& cache, const std::string& key, const std::vector<Failure>& failures) {
  std::string text = std::to_string(now()) + "\n";
  for (const Failure& failure : failures) text += failure.driver.file + "\t" + failure.reason + "\n";
  cache.store(kKind, key, std::as_bytes(std::span(text)));
}

// True where the program was given to a loader (ld-linux-x86-64.so.2 PROGRAM), which is what would be started in its place.
bool started_by_loader(const std::string& program) {
  std::error_code failed;
  return std::filesystem::read_symlink(program, failed).filename().string().starts_with("ld-");
}

// Asks these drivers. "" = they answered or could not be asked; else what happened.
std::string ask(const DriverProbe& probe, const std::string& backend, const std::vector<std::string>& files) {
  if (started_by_loader(probe.program)) return {};
  const double limit = number_from_environment("MESHLOOM_PROBE_SECONDS", probe.seconds);
  std::vector<std::string> words{"meshloom", kProbeCommand, backend};
  words.insert(words.end(), files.begin(), files.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int fd = 0; fd <= 2; ++fd)
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
  pid_t child = 0;
  const int started =
      ::posix_spawn(&child, probe.program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (started != 0) return {};
  const auto begin = std::chrono::steady_clock::now();
  const auto wait = [&](double seconds, int& status) {
    for (auto pause = std::chrono::microseconds(200);;
         pause = std::min(pause * 2, std::chrono::microseconds(20000))) {
      const pid_t ended = ::waitpid(child, &status, WNOHANG);
      if (ended == child) return true;
      if (ended < 0 && errno != EINTR) {  // somebody else has waited for it
        status = 0;
        return true;
      }
      if (seconds > 0 &&
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > seconds)
        return false;
      std::this_thread::sleep_for(pause);
    }
  };
  int status = 0;
  if (!wait(limit, status)) {
    ::kill(child, SIGKILL);
    wait(limit + 1, status);  // a process that waits for a device's hardware does not end
    std::ostringstream text;
    text << "it did not answer within " << limit << " s";
    return text.str();
  }
  if (WIFSIGNALED(status)) return std::string("it crashed (") + ::strsignal(WTERMSIG(status)) + ")";
  if (WEXITSTATUS(status) != 0)
    return "it ended the process with the exit code " + std::to_string(WEXITSTATUS(status));
  return {};
}

// The drivers that do not fail.
std::vector<InstalledDriver> working(std::vector<InstalledDriver> drivers,
                                     const std::vector<Failure>& failures) {
  std::erase_if(drivers, [&](const InstalledDriver& driver) {
    return std::any_of(failures.begin(), failures.end(),
                       [&](const Failure& failure) { return failure.driver.file == driver.file; });
  });
  return drivers;
}

std::vector<Failure> failing(const DriverProbe& probe, const std::string& backend,
                             const std::vector<InstalledDriver>& drivers, std::string& together) {
  together = ask(probe, backend, {});
  std::vector<Failure> failures;
  if (together.empty()) return failures;
  for (const InstalledDriver& driver : drivers)
    if (std::string reason = ask(probe, backend, {driver.file}); !reason.empty())
      failures.push_back({driver, std::move(reason)});
  if (failures.size() < drivers.size() && !failures.empty()) {
    // Those that are left must answer together.
    std::vector<std::string> left;
    for (const InstalledDriver& driver : working(drivers, failures)) left.push_back(driver.file);
    together = ask(probe, backend, left);
  }
  return failures;
}

// What a backend's drivers said, which is asked once.
class Guard {
 public:
  Guard(BackendEntry entry, DriverProbe probe) : entry_(std::move(entry)), probe_(std::move(probe)) {}

  std::vector<DeviceInfo> enumerate(std::string& why_none) {
    if (!asked_) {
      asked_ = true;
      check();
    }
    why_none = left_out_;
    if (!left_out_.empty()) return {};
    return entry_.enumerate(why_none);
  }
  std::unique_ptr<Device> open(int index) {
    std::string why_none;
    if (enumerate(why_none).empty()) throw Error(entry_.name, "needs a device of this backend", why_none);
    return entry_.open(index);
  }
  std::unique_ptr<Device> open_to_inspect(int index) {
    std::string why_none;
    if (enumerate(why_none).empty()) throw Error(entry_.name, "needs a device of this backend", why_none);
    return entry_.open_to_inspect(index);
  }

 private:
  void check() {
    const std::vector<InstalledDriver> drivers = entry_.drivers();
    if (drivers.empty()) return;
    const DiskCache cache = DiskCache::from_environment();
    const std::string key = key_of(entry_.name, drivers);
    std::optional<std::vector<Failure>> failures = load(cache, key, drivers);
    std::string together;
    if (!failures) {
      failures = failing(probe_, entry_.name, drivers, together);
      if (failures->empty() ? together.empty() : failures->size() == drivers.size() || together.empty())
        store(cache, key, *failures);
    }
    for (const Failure& failure : *failures)
      if (probe_.note)
        probe_.note("the " + entry_.name + " driver '" + failure.driver.name + "' (" + failure.driver.file +
                    ") is left out: " + failure.reason +
                    " when it was asked for its devices in a process of its own");
    if (failures->size() == drivers.size())
      left_out_ = "each driver fails when it is asked for its devices";
    else if (!together.empty())
      left_out_ = "the drivers fail together when they are asked for their devices: " + together;
    if (!left_out_.empty() || failures->empty()) return;
    only_ = entry_.use_only(working(drivers, *failures));
  }

  BackendEntry entry_;
  DriverProbe probe_;
  bool asked_ = false;
  std::string left_out_;        // why the whole backend is
  std::shared_ptr<void> only_;  // see BackendEntry::use_only
};

}  // namespace

void probe_drivers(Registry& registry, DriverProbe probe) {
  registry.transform([&probe](BackendEntry entry) {
    if (!entry.drivers) return entry;
    const auto guard = std::make_shared<Guard>(entry, probe);
    entry.enumerate = [guard](std::string& why_none) { return guard->enumerate(why_none); };
    entry.open = [guard](int index) { return guard->open(index); };
    if (entry.open_to_inspect)
      entry.open_to_inspect = [guard](int index) { return guard->open_to_inspect(index); };
    return entry;
  });
}

std::optional<int> answer_probe(int argc, char** argv, const Registry& registry) {
  if (argc < 3 || std::string_view(argv[1]) != kProbeCommand) return std::nullopt;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const BackendEntry* entry = registry.find(argv[2]);
  if (!entry || !entry->drivers) return 0;
  std::shared_ptr<void> only;
  if (argc > 3) {
    std::vector<InstalledDriver> drivers = entry->drivers(), chosen;
    for (const InstalledDriver& driver : drivers)
      if (std::find_if(argv + 3, argv + argc, [&](const char* file) { return driver.file == file; }) !=
          argv + argc)
        chosen.push_back(driver);
    only = entry->use_only(chosen);
  }
  std::string why_none;
  entry->enumerate(why_none);
  return 0;
}

}  // namespace meshloom::hal
