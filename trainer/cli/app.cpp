#include "trainer/cli/app.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/cli/command.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

// Each is in a file of its own; `meshloom --help` lists them in this order.
AddCommand add_train, add_data, add_generate, add_score, add_serve, add_import, add_export, add_plan,
    add_config, add_recipes, add_classes, add_checkpoint, add_devices, add_profiles, add_kernels;

namespace {

constexpr AddCommand* kCommands[] = {add_train,   add_data,       add_generate, add_score,    add_serve,
                                     add_import,  add_export,     add_plan,     add_config,   add_recipes,
                                     add_classes, add_checkpoint, add_devices,  add_profiles, add_kernels};

// An opened file gets the lowest free descriptor: if standard output is closed, a checkpoint could become
// standard output.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    while (::fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
           ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) >= 0) {
    }
}

int fail(std::string text, int code) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  fmt::print(stderr, "meshloom: {}\n", text);
  return code;
}

}  // namespace

namespace {
bool muted = false;
}

void say_note(const std::string& text) {
  if (!muted) fmt::print(stderr, "note: {}\n", text);
}

void mute_notes(bool mute) { muted = mute; }

int run_command_line(int argc, char** argv, const hal::Registry& registry, const kernels::Catalog& catalog,
                     const std::vector<AddCommand*>& more) {
  // A file that exceeds a limit, or a reader that went away, must be an error of the write instead of a
  // signal.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  open_standard_streams();
  try {
    const layers::ClassTable classes = recipe_classes();
    const Registries registries{registry, catalog, classes};
    CLI::App app("Trains transformers on Vulkan, OpenCL or the CPU alone.", "meshloom");
    app.set_version_flag("--version", "meshloom 0.1.0");
    app.require_subcommand(1);
    app.set_help_all_flag("--help-all", "Print the help of every command");
    Action action;
    for (AddCommand* add : kCommands) add(app, registries, action);
    for (AddCommand* add : more) add(app, registries, action);
    // CLI11 itself would only say that a subcommand is missing.
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
      names.push_back(command->get_name());
    if (argc > 1 && argv[1][0] != '-' && std::find(names.begin(), names.end(), argv[1]) == names.end()) {
      return fail(fmt::format("command line: the command must be one of {}{}; found '{}'", hal::join(names),
                              hal::suggestion(argv[1], names), argv[1]),
                  2);
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& done) {
      return app.exit(done);  // --help, --version
    } catch (const CLI::ParseError& error) {
      return fail(fmt::format("command line: {} (see meshloom --help)", error.what()), 2);
    }
    const int code = action();
    errno = 0;
    if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) &&
        errno != EPIPE)  // a reader may close the pipe early
      throw Error("standard output", "must accept the output",
                  errno ? std::strerror(errno) : "an error before");
    return code;
  } catch (const Error& error) {
    return fail(error.what(), 1);
  } catch (const std::bad_alloc&) {
    return fail("host: must have enough memory; found none left", 1);
  } catch (const std::exception& error) {
    return fail(fmt::format("unexpected: {}", error.what()), 1);
  }
}

}  // namespace meshloom::trainer
