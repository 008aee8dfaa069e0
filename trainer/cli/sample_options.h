// The options for the text that a run writes, shared by train and plan.
#pragma once

#include <CLI/CLI.hpp>

#include "trainer/cli/command.h"
#include "trainer/rules/fit.h"
#include "trainer/run/run_plan.h"

namespace meshloom::trainer {

// Adds --sample-every and returns it; `help` says what it does.
CLI::Option* add_sample_every(CLI::App& command, SampleOptions& sample, const std::string& help);
CLI::Option* add_sample_tokens(CLI::App& command, SampleOptions& sample, const std::string& help);

// Composes runs that write such samples.
ComposeRun composes_with(const SampleOptions& sample, const Registries& registries);

}  // namespace meshloom::trainer
