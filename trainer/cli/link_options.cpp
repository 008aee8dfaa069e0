#include "trainer/cli/link_options.h"

#include <utility>

#include "hal/error.h"
#include "hal/wrappers/checked_transport.h"
#include "hal/wrappers/delayed_transport.h"
#include "hal/wrappers/slowed_device.h"
#include "trainer/io/shell_word.h"

namespace meshloom::trainer {

void LinkOptions::add_to(CLI::App& command) {
  const CLI::Validator filled(
      [](std::string& text) { return std::string(text.empty() ? "must not be empty; found ''" : ""); }, "");
  command
      .add_option("--link", link,
                  "Emulate a link between ranks, by sleeping: 'latency=0.2ms bandwidth=100MB/s jitter=50us', "
                  "of which jitter may be left out")
      ->type_name("LINK")
      ->check(filled);
  command
      .add_option("--slow", slow,
                  "RANK:FACTOR,...: what these ranks compute takes so many times longer, by sleeping")
      ->type_name("RANK:FACTOR")
      ->check(filled);
  command.add_flag(
      "--checked", checked,
      "Compare op, path, bytes and order of every message on both ranks, at the cost of another message");
}

void LinkOptions::check(int ranks) const {
  if (ranks < 2)
    for (const auto& [name, given] :
         {std::pair{"--link", !link.empty()}, {"--slow", !slow.empty()}, {"--checked", checked}})
      if (given) throw Error(name, "needs several ranks (--mesh, --ranks)", "1 rank");
  if (!link.empty()) hal::parse_link(link, "--link");
  if (!slow.empty()) hal::parse_slow(slow, ranks, "--slow");
}

std::string LinkOptions::shell_arguments() const {
  return (link.empty() ? "" : " --link " + shell_word(link)) +
         (slow.empty() ? "" : " --slow " + shell_word(slow)) + (checked ? " --checked" : "");
}

std::unique_ptr<hal::Transport> LinkOptions::wrapped(std::unique_ptr<hal::Transport> transport) const {
  if (!link.empty()) transport = hal::delayed(std::move(transport), hal::parse_link(link, "--link"));
  if (checked) transport = hal::checked(std::move(transport));
  return transport;
}

std::unique_ptr<hal::Device> LinkOptions::slowed(std::unique_ptr<hal::Device> device, int rank,
                                                 int ranks) const {
  if (slow.empty()) return device;
  const std::map<int, double> factors = hal::parse_slow(slow, ranks, "--slow");
  const auto found = factors.find(rank);
  return found == factors.end() ? std::move(device) : hal::slowed(std::move(device), found->second);
}

}  // namespace meshloom::trainer
