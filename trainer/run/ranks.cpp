#include "trainer/run/ranks.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "hal/error.h"
#include "kernel_sources.h"
#include "layers/config/tree.h"
#include "trainer/execute/agreed_error.h"
#include "trainer/execute/exchange.h"
#include "trainer/execute/gather_texts.h"
#include "trainer/io/file.h"
#include "trainer/mesh/tags.h"
#include "trainer/run/state/field_rules.h"

namespace meshloom::trainer {
namespace {

using kernels::collective::kInput;
using kernels::collective::kOutput;
using kernels::collective::Move;
using Message = std::array<std::int64_t, 2>;

constexpr std::int64_t kBytes = sizeof(Message);
void pass(hal::Transport& transport, const std::vector<Move>& moves, Message& message) {
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(message));
  const std::array<std::span<std::byte>, 2> tensors{bytes, bytes};
  // Other ranks wait while rank 0 writes files, which may take long.
  exchange(transport, all_ranks(transport), moves, tensors, {kCommandTag, "command", "run"}, kForever);
}

std::string hash_text(const std::string& text) {
  return fmt::format("xxhash64 {:016x}", XXH64(text.data(), text.size(), 0));
}

constexpr const char* kRecipe = "recipe's ";
constexpr const char* kHint =
    " (rules may edit it for the hardware, and fit=true for the memory, of a rank; --set says what all have)";

// Something in which ranks must agree.
struct Agreed {
  std::string what, value;
};
using AllAgreed = std::vector<std::vector<Agreed>>;  // by rank

std::string agreed_text(const std::vector<Agreed>& list) {
  std::string text;
  for (const auto& [what, value] : list) text += what + '\0' + value + '\0';
  return text;
}

std::vector<Agreed> agreed_list(const std::string& lines) {
  std::vector<Agreed> list;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t middle = lines.find('\0', at), end = lines.find('\0', middle + 1);
    list.push_back({lines.substr(at, middle - at), lines.substr(middle + 1, end - middle - 1)});
    at = end + 1;
  }
  return list;
}

// Throws AgreedError for the first entry in which `other` differs from `first`.
void require_equal(const hal::Transport& transport, int first, const std::vector<Agreed>& of_first, int other,
                   const std::vector<Agreed>& of_other) {
  const Agreed none{"", "none"};
  for (std::size_t i = 0; i < std::max(of_first.size(), of_other.size()); ++i) {
    const Agreed& wanted = i < of_first.size() ? of_first[i] : none;
    const Agreed& found = i < of_other.size() ? of_other[i] : none;
    if (wanted.what == found.what && wanted.value == found.value) continue;
    const bool same = wanted.what == found.what || found.what.empty();
    throw AgreedError(
        transport.name(other),
        fmt::format("must have the {} of {}{}: {}", wanted.what.empty() ? found.what : wanted.what,
                    transport.name(first), wanted.what.starts_with(kRecipe) ? kHint : "", wanted.value),
        (same ? "" : found.what + ": ") + found.value);
  }
}

// What all ranks have, where something differs; else nothing. The same on every rank.
std::optional<AllAgreed> gather_differing(hal::Transport& transport, const std::vector<Agreed>& own,
                                          double patience) {
  const std::string lines = agreed_text(own);
  const std::vector<std::string> hashes = gather_texts(transport, hash_text(lines), patience);
  if (std::all_of(hashes.begin(), hashes.end(), [&](const std::string& hash) { return hash == hashes[0]; }))
    return std::nullopt;
  AllAgreed all;
  for (const std::string& text : gather_texts(transport, lines, patience)) all.push_back(agreed_list(text));
  return all;
}

// The hash of the program's own file, where the processors of all ranks can run the same one.
std::string executable_text(hal::Transport& transport, double patience) {
  utsname system{};
  ::uname(&system);
  const std::vector<std::string> machines = gather_texts(transport, system.machine, patience);
  if (std::any_of(machines.begin(), machines.end(), [&](const auto& one) { return one != machines[0]; }))
    return {};
  static const std::string hash = hash_text(read_file("/proc/self/exe", "the program's own file"));
  return ", executable " + hash;
}

}  // namespace

void share_cores(std::int64_t ranks) {
  ::setenv("MESHLOOM_THREADS", fmt::format("1/{}", std::max<std::int64_t>(1, ranks)).c_str(), 0);
}

std::vector<std::string> gathered_values(const Plan& plan) {
  std::vector<std::string> names;
  for (const auto& [name, division] : plan.divided)
    if (name.find('@') == std::string::npos) names.push_back(name);  // slots differ from stage to stage
  return names;
}

void tell(hal::Transport* transport, RankCommand command) {
  if (!transport) return;
  Message message{static_cast<std::int64_t>(command.kind), command.value};
  std::vector<Move> moves;
  for (int rank = 1; rank < transport->size(); ++rank) moves.push_back({rank, true, kInput, 0, kBytes});
  pass(*transport, moves, message);
}

RankCommand listen(hal::Transport& transport) {
  Message message{};
  pass(transport, {{0, false, kOutput, 0, kBytes}}, message);
  return {static_cast<RankCommand::Kind>(message[0]), message[1]};
}

void require_agreement(hal::Transport& transport, const TrainerConfig& config, std::uint64_t data,
                       double patience) {
  std::vector<Agreed> own{
      {"program", fmt::format("meshloom {}, kernels {}{}", MESHLOOM_VERSION, MESHLOOM_KERNEL_SOURCES,
                              executable_text(transport, patience))}};
  for (const auto& [path, value] : layers::flatten(config))
    if (!field_rule(path).per_rank) own.push_back({kRecipe + path, value});
  own.push_back({"data", fmt::format("xxhash64 {:016x}", data)});
  const std::optional<AllAgreed> all = gather_differing(transport, own, patience);
  if (!all) return;
  for (int rank = 1; rank < transport.size(); ++rank)
    require_equal(transport, 0, all->front(), rank, all->at(static_cast<std::size_t>(rank)));
}

void require_same_moves(hal::Transport& transport, const Plan& plan, const kernels::Catalog& catalog,
                        double patience) {
  std::vector<Agreed> own;  // what: the ranks of the group
  for (const auto& [key, planned] : plan.steps.programs) {
    std::map<std::string, int> numbers;  // by group: stages of a pipeline have moves of their own
    for (const kernels::Call& call : planned.program.calls) {
      if (!catalog.contract(call.op).moves) continue;
      std::string group;
      for (const int rank : plan.mesh.group(axes_from_string(call.attrs.text("axes"))))
        group += std::to_string(rank) + ",";
      const int number = ++numbers[group];
      own.push_back(
          {std::move(group),
           fmt::format("{} in '{}', {} of {}, move {}", call.op, call.path,
                       hal::to_string(planned.program.value(call.inputs.at(0)).type.dtype),
                       call.attrs.has("runs") ? kernels::to_string(call.attrs.list("runs")) : "equal parts",
                       number)});
      own.back().value += fmt::format(" of the program {}", planned.program.name);
    }
  }
  const std::optional<AllAgreed> all = gather_differing(transport, own, patience);
  if (!all) return;
  // The ranks of a group must do the same in it; others need not.
  std::map<std::string, std::vector<std::pair<int, std::vector<Agreed>>>> groups;
  for (int rank = 0; rank < transport.size(); ++rank) {
    std::map<std::string, std::vector<Agreed>> lists;
    for (const Agreed& one : all->at(static_cast<std::size_t>(rank)))
      lists[one.what].push_back({"moves", one.value});
    for (auto& [group, list] : lists) groups[group].emplace_back(rank, std::move(list));
  }
  for (const auto& [group, ranks] : groups) {
    for (std::size_t i = 1; i < ranks.size(); ++i)
      require_equal(transport, ranks[0].first, ranks[0].second, ranks[i].first, ranks[i].second);
    for (std::size_t at = 0; at < group.size(); at = group.find(',', at) + 1)
      if (const int rank = std::stoi(group.substr(at));
          std::none_of(ranks.begin(), ranks.end(), [&](const auto& one) { return one.first == rank; }))
        require_equal(transport, ranks[0].first, ranks[0].second, rank, {});
  }
}

std::string require_own_devices(hal::Transport& transport, const hal::DeviceInfo& device, bool named,
                                const std::string& hardware, double patience) {
  // Lines: whether the device may be shared, its id, and what it is in words.
  const std::string own = fmt::format("{}\n{}\n{} ({}) as {}", device.is_cpu || named ? "shared" : "own",
                                      device.id, device.id, device.name, hardware);
  const std::vector<std::string> all = gather_texts(transport, own, patience);
  std::vector<std::string> words;
  std::map<std::pair<int, std::string>, int> users;  // of a GPU of a host: the first rank
  for (int rank = 0; rank < transport.size(); ++rank) {
    const std::string& text = all[static_cast<std::size_t>(rank)];
    const std::size_t first = text.find('\n'), second = text.find('\n', first + 1);
    const std::string id = text.substr(first + 1, second - first - 1);
    words.push_back(text.substr(second + 1));
    if (text.substr(0, first) == "shared") continue;
    const auto [user, is_new] = users.emplace(std::pair(transport.peer(rank).node, id), rank);
    if (!is_new)
      throw Error(
          "ranks",
          fmt::format("two ranks of a host share a GPU only where --rank-devices names it by its index "
                      "for both, such as \"{},{}:{}\"",
                      user->second, rank, id),
          fmt::format("{} and {} on {}", transport.name(user->second), transport.name(rank), words.back()));
  }
  std::string said;
  for (std::size_t rank = 0; rank < words.size();) {
    std::size_t last = rank;
    while (last + 1 < words.size() && words[last + 1] == words[rank]) ++last;
    if (last + 1 == words.size() && rank == 0) return {};
    said += (said.empty() ? "" : "; ") +
            fmt::format("{}{} on {}", last > rank ? "ranks " : "rank ",
                        last > rank ? fmt::format("{}-{}", rank, last) : std::to_string(rank), words[rank]);
    rank = last + 1;
  }
  return said;
}

}  // namespace meshloom::trainer
