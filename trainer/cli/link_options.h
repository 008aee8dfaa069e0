// Options that make the ranks of one machine like those of a network, and that check their messages.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "hal/device.h"
#include "hal/transport/link_model.h"
#include "hal/transport/transport.h"

namespace meshloom::trainer {

struct LinkOptions {
  std::string link, slow;  // as they were written; "" = not given
  bool checked = false;

  void add_to(CLI::App& command);
  // Throws Error for what cannot be read, and where there is one rank.
  void check(int ranks) const;
  // The options with these values, for a command that continues a run; they begin with a space.
  std::string shell_arguments() const;
  // To be called on every rank, behind check().
  std::unique_ptr<hal::Transport> wrapped(std::unique_ptr<hal::Transport> transport) const;
  std::unique_ptr<hal::Device> slowed(std::unique_ptr<hal::Device> device, int rank, int ranks) const;
};

}  // namespace meshloom::trainer
