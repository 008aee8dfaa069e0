#include "trainer/run/balance_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>
#include <vector>

#include "trainer/compose/compose.h"
#include "trainer/compose/report.h"
#include "trainer/execute/agreed_error.h"
#include "trainer/execute/gather_texts.h"
#include "trainer/execute/session.h"
#include "trainer/mesh/shares.h"
#include "trainer/run/step_runner.h"

namespace meshloom::trainer {

double row_seconds(const TrainerConfig& config, const Dataset& data, hal::Device& device,
                   const kernels::Catalog& catalog, int steps) {
  TrainerConfig alone = config;
  alone.batch = alone.accumulation = 1;
  alone.eval_batches = 0;
  alone.mesh = layers::Child<MeshConfig>(MeshConfig());
  Session session(
      device, catalog,
      compose_training(*alone.model, *alone.learner, alone.compose_options(), catalog, device.info()));
  initialize(session, static_cast<std::uint64_t>(alone.seed));
  StepRunner runner(alone, session, data.train(1, static_cast<std::uint64_t>(alone.seed)), nullptr);
  double least = std::numeric_limits<double>::infinity();
  for (int step = 0; step <= steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    runner.step(step);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (step > 0) least = std::min(least, seconds);
  }
  return least;
}

std::int64_t max_rows(const TrainerConfig& config, const hal::DeviceInfo& device,
                      const kernels::Catalog& catalog, int rank) {
  ComposeOptions options = config.compose_options();
  options.rank = rank;
  options.enforce_memory = false;
  const Topology mesh(options.mesh, rank);
  const int places = mesh.size(kRowAxes), place = mesh.place(kRowAxes);
  const std::int64_t rows = options.rows(), most = rows - places + 1, limit = memory_limit(device);
  const auto bytes = [&](std::int64_t own) {
    options.shares.assign(static_cast<std::size_t>(places), 1);
    options.shares[place == 0 ? 1 : 0] += most - own;
    options.shares[static_cast<std::size_t>(place)] = own;
    return compose_training(*config.model, *config.learner, options, catalog, device).peak_bytes;
  };
  if (places < 2 || rows < places || limit <= 0) return 0;
  const std::int64_t largest = bytes(most);
  if (largest <= limit) return 0;
  const std::int64_t least = bytes(1);
  if (least >= limit || least >= largest) return 1;
  return 1 + static_cast<std::int64_t>(static_cast<double>(limit - least) /
                                       static_cast<double>(largest - least) * static_cast<double>(most - 1));
}

std::string balance_rows(TrainerConfig& config, const Dataset& data, hal::Device& device,
                         const kernels::Catalog& catalog, hal::Transport& transport, double patience,
                         std::span<const std::int64_t> known) {
  std::vector<std::int64_t>& shares = config.mesh->shares;
  const std::string of_first = gather_texts(transport, fmt::format("{}", fmt::join(known, " ")), patience)[0];
  if (!of_first.empty()) {
    std::istringstream numbers(of_first);
    for (std::int64_t rows = 0; numbers >> rows;) shares.push_back(rows);
    return fmt::format("rows of a micro-batch by rank, as before: [{}]", fmt::join(shares, ", "));
  }
  std::string own;
  try {
    own = fmt::format("{} {}", row_seconds(config, data, device, catalog),
                      max_rows(config, device.info(), catalog, transport.rank()));
  } catch (const hal::DeviceLost&) {
    throw;
  } catch (const std::exception& error) {
    own = fmt::format("! {}", error.what());  // told to all, who would wait for it otherwise
  }
  const Topology mesh(config.mesh->axes());
  std::vector<RankSpeed> speeds(static_cast<std::size_t>(mesh.size(kRowAxes)), {0, 0});
  const std::vector<std::string> all = gather_texts(transport, own, patience);
  for (int rank = 0; rank < transport.size(); ++rank) {
    const std::string& text = all[static_cast<std::size_t>(rank)];
    if (text.starts_with("! "))
      throw AgreedError("mesh.balance",
                        "one row of the recipe must run on every rank by itself to be measured; mesh.shares "
                        "sets what is not measured",
                        fmt::format("{}: {}", transport.name(rank), text.substr(2)));
    std::istringstream numbers(text);
    RankSpeed of_rank;
    numbers >> of_rank.seconds >> of_rank.max_rows;
    RankSpeed& speed = speeds[static_cast<std::size_t>(mesh.place_of(rank, kRowAxes))];
    speed.seconds = std::max(speed.seconds, of_rank.seconds);
    if (of_rank.max_rows > 0)
      speed.max_rows = speed.max_rows > 0 ? std::min(speed.max_rows, of_rank.max_rows) : of_rank.max_rows;
  }
  try {
    shares = deal_rows(config.batch / config.accumulation, speeds);
  } catch (const Error& error) {
    throw AgreedError("mesh.balance", "the rows of a micro-batch must be divided among the ranks",
                      error.what());
  }
  std::string measured;
  for (const RankSpeed& speed : speeds)
    measured += fmt::format("{}{:.3g}", measured.empty() ? "" : ", ", speed.seconds);
  return fmt::format("rows of a micro-batch by rank: mesh.shares=[{}], as one row takes {} s",
                     fmt::join(shares, ","), measured);
}

}  // namespace meshloom::trainer
