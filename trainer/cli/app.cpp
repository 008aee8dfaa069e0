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
#include <system_error>

#include "hal/error.h"
#include "hal/standard_error.h"
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
  say_error(text);
  return code;
}

// Throws Error where standard output did not take all that was printed; a reader may close the pipe early.
void check_output(int reason) {
  if (reason != EPIPE)
    throw Error("standard output", "must accept the output",
                reason ? std::strerror(reason) : "an error before");
}

int run_and_flush(const Action& action) {
  int code = 0;
  try {
    code = action();
  } catch (const std::system_error& error) {  // of fmt::print
    if (!std::ferror(stdout)) throw;
    check_output(error.code().value());
    return code;
  }
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) check_output(errno);
  return code;
}

// The command whose options were read when reading them failed.
const CLI::App& command_of(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : command_of(*chosen.back());
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent ? full_name(*parent) + " " : "") + command.get_name();
}

std::string unexpected_arguments(const CLI::App& app, const CLI::App& command) {
  std::vector<std::string> found = app.remaining(/*recurse=*/true), known;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  // A misspelt option; what stands behind it is its value.
  for (std::string& argument : found) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name.starts_with("--"))
      return fmt::format("'{}' is no option of this command{}", name, hal::suggestion(name, known));
    argument = "'" + argument + "'";
  }
  return fmt::format("nothing more was expected; found {}", hal::join(found));
}

}  // namespace

namespace {
bool muted = false;
}

void say_error(const std::string& text) { hal::print_error("meshloom: " + text + "\n"); }

void say_note(const std::string& text) {
  if (!muted) hal::print_error("note: " + text + "\n");
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
      return run_and_flush([&] { return app.exit(done); });  // --help, --version
    } catch (const CLI::ParseError& error) {
      const CLI::App& command = command_of(app);
      const std::string found =
          dynamic_cast<const CLI::ExtrasError*>(&error) ? unexpected_arguments(app, command) : error.what();
      return fail(fmt::format("command line: {} (see {} --help)", found, full_name(command)), 2);
    }
    return run_and_flush(action);
  } catch (const Error& error) {
    return fail(error.what(), 1);
  } catch (const std::bad_alloc&) {
    return fail("host: must have enough memory; found none left", 1);
  } catch (const std::exception& error) {
    return fail(fmt::format("unexpected: {}", error.what()), 1);
  }
}

}  // namespace meshloom::trainer
