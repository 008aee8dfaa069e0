// The subcommands of `meshloom`: one file each, which declares its options and says what to do.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "layers/config/config.h"
#include "trainer/io/units.h"

namespace meshloom::trainer {

// What commands work with: the devices, the kernels, and the classes of recipes.
struct Registries {
  const hal::Registry& devices;
  const kernels::Catalog& catalog;
  const layers::ClassTable& classes;
};

// Runs the chosen subcommand and returns the exit code.
using Action = std::function<int()>;
using AddCommand = void(CLI::App& app, const Registries& registries, Action& action);

// Prints an error, or a note, as one line on stderr.
void say_error(const std::string& text);
void say_note(const std::string& text);
// Notes are not printed any more: they are of a rank that does not speak for its job.
void mute_notes(bool mute = true);
// Accepts integers from `min`; the error is "must be an integer from MIN to 2^63 - 1; found ...".
CLI::Validator integer_from(std::int64_t min);

}  // namespace meshloom::trainer
