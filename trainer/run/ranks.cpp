#include "trainer/run/ranks.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "trainer/execute/exchange.h"

namespace meshloom::trainer {
namespace {

using kernels::collective::kInput;
using kernels::collective::kOutput;
using kernels::collective::Move;
using Message = std::array<std::int64_t, 2>;

constexpr std::int64_t kBytes = sizeof(Message);
// Other ranks wait while rank 0 writes files, which may take long.
constexpr double kForever = 1e9;

void pass(hal::Transport& transport, const std::vector<Move>& moves, Message& message) {
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(message));
  const std::array<std::span<std::byte>, 2> tensors{bytes, bytes};
  exchange(transport, all_ranks(transport), moves, tensors, {hal::kMaxTag - 2, "command", "run"}, kForever);
}

std::uint64_t hash(const std::string& text) { return XXH64(text.data(), text.size(), 0); }

}  // namespace

std::vector<std::string> gathered_values(const Plan& plan) {
  std::vector<std::string> names;
  for (const auto& [name, division] : plan.divided)
    if (name.find('@') == std::string::npos) names.push_back(name);  // slots differ from stage to stage
  return names;
}

void share_cores(int ranks) {
  const unsigned cores = std::thread::hardware_concurrency();
  ::setenv("MESHLOOM_THREADS", std::to_string(std::max(1U, cores / static_cast<unsigned>(ranks))).c_str(), 0);
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
  // Where a run has its place may differ: device, profile, kernels and what is saved in memory.
  std::string recipe;
  for (const auto& [path, value] : layers::flatten(config)) {
    bool own = false;
    for (const char* field : {"device", "profile", "hardware", "memory", "fit", "kernels", "remat",
                              "mesh_rules", "hardware_rules", "input.files", "input.eval_files"})
      own = own || path.starts_with(field);
    if (!own) recipe += path + " = " + value + "\n";
  }
  constexpr std::array<const char*, 3> kWhat{"program", "recipe", "data"};
  std::array<std::uint64_t, 3> own{hash(MESHLOOM_VERSION), hash(recipe), data};
  std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(transport.size()));
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(transport.size()), sizeof own);
  const std::array<std::span<std::byte>, 2> tensors{std::as_writable_bytes(std::span(own)),
                                                    std::as_writable_bytes(std::span(all))};
  exchange(transport, all_ranks(transport), kernels::collective::all_gather(sizes, transport.rank()), tensors,
           {hal::kMaxTag - 3, "agreement", "run"}, patience);
  for (std::size_t i = 0; i < kWhat.size(); ++i)
    for (int rank = 1; rank < transport.size(); ++rank)
      if (const std::uint64_t its = all[static_cast<std::size_t>(rank) * own.size() + i]; its != all[i])
        throw Error(transport.name(rank),
                    fmt::format("must run with the {} of {}", kWhat[i], transport.name(0)),
                    fmt::format("xxhash64 {:016x} instead of {:016x}", its, all[i]));
}

}  // namespace meshloom::trainer
