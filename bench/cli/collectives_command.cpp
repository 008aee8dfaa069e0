#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "backends/mpi/backend.h"
#include "backends/threads/backend.h"
#include "bench/cli/command.h"
#include "bench/cli/options.h"
#include "bench/cli/progress.h"
#include "bench/core/collectives.h"
#include "bench/core/environment.h"
#include "hal/error.h"
#include "hal/transport/link_model.h"
#include "hal/wrappers/checked_transport.h"
#include "hal/wrappers/delayed_transport.h"
#include "trainer/cli/command.h"
#include "trainer/compose/cost/measured_links.h"
#include "trainer/execute/agreed_error.h"
#include "trainer/run/stop.h"

namespace meshloom::bench {
namespace {

namespace mpi = backends::mpi;

constexpr double kPatienceAtStart = 60;  // seconds

struct CollectiveOptions {
  int ranks = 0;  // 0 = not given
  std::string link, slow, sizes = "1KiB,32KiB,1MiB,4MiB", time = "0.2", patience = "60", json;
  bool checked = false, quiet = false;
};

// "1KiB,64KiB,4MiB"
std::vector<std::int64_t> parse_sizes(const std::string& text) {
  const std::map<std::string, std::int64_t> units{{"", 1},         {"B", 1},      {"kB", 1000},
                                                  {"MB", 1000000}, {"KiB", 1024}, {"MiB", 1 << 20}};
  std::vector<std::int64_t> sizes;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    const auto unit = units.find(item.substr(static_cast<std::size_t>(end - item.data())));
    constexpr std::int64_t kMax = std::int64_t{1} << 30;
    if (error != std::errc() || unit == units.end() || number < 1 || number > kMax / unit->second)
      throw Error("--sizes", "must be sizes from 1B to 1024MiB, such as 1KiB,64KiB,4MiB", "'" + item + "'");
    sizes.push_back(number * unit->second);
  }
  if (sizes.empty()) throw Error("--sizes", "must be sizes such as 1KiB,64KiB,4MiB", "none");
  return sizes;
}

// What every rank does, with its own transport.
struct Job {
  const CollectiveOptions& options;
  CollectivesOptions measure;
  hal::LinkModel link;
  std::map<int, double> slow;
  bool threads = false;

  // Reads the options. Throws Error.
  void prepare(int ranks) {
    measure.sizes = parse_sizes(options.sizes);
    measure.seconds = parse_duration(options.time, "--time-per-case");
    measure.patience = parse_duration(options.patience, "--patience");
    if (!options.link.empty()) link = hal::parse_link(options.link, "--link");
    if (!options.slow.empty() && options.link.empty())
      throw Error("--slow", "needs --link, whose ports it slows", "no link");
    if (!options.slow.empty()) slow = hal::parse_slow(options.slow, ranks, "--slow");
    if (ranks < 2) throw Error("bench collectives", "needs at least two ranks", std::to_string(ranks));
  }

  // To be called where rank 0 is, which writes.
  void check_files() const {
    OutputOptions files;
    files.json = options.json;
    files.check();
  }

  // What was measured is for plans, unless it was of no real link.
  void save(const hal::Transport& transport, const CollectivesReport& report) const {
    if (!options.link.empty() || options.checked || report.stopped) return;
    bool apart = false;
    for (int rank = 1; rank < transport.size(); ++rank)
      apart = apart || transport.peer(rank).node != transport.peer(0).node;
    const char* kind = threads ? trainer::kThreadLink : apart ? trainer::kNetworkLink : trainer::kHostLink;
    try {
      trainer::save_measured_link(
          kind, {report.fit.alpha, report.fit.gap, report.fit.bandwidth, report.header.get("date")});
    } catch (const Error& error) {
      trainer::say_note(std::string("the link is not kept for plans; ") + error.what());
    }
  }

  // The exit code, on rank 0.
  int run(std::unique_ptr<hal::Transport> transport, CollectivesReport& report) const {
    if (!options.link.empty()) {
      report.link = to_string(link) + (options.slow.empty() ? "" : ", slowed " + options.slow);
      transport = hal::delayed(std::move(transport), link, slow);
    }
    if (options.checked) transport = hal::checked(std::move(transport));
    if (transport->rank() == 0) report.header = describe_host();
    try {
      measure_collectives(*transport, measure, report);
    } catch (const Error& error) {
      transport->abort(error.what());
    }
    if (transport->rank() != 0) return kDone;
    save(*transport, report);
    if (options.json == "-") {
      fmt::print("{}", to_json(report));
    } else {
      if (!options.json.empty()) write_file(options.json, to_json(report));
      fmt::print("{}", to_text(report));
    }
    for (const CollectiveRow& row : report.rows)
      if (row.wrong) return kWrongResult;
    return report.stopped ? kStopped : kDone;
  }
};

int run_processes(Job& job) {
  std::unique_ptr<hal::Transport> transport = mpi::connect(mpi::own_environment());
  std::string own;
  try {
    job.prepare(transport->size());
    if (transport->rank() == 0) job.check_files();
  } catch (const Error& error) {
    own = error.what();
  }
  const bool first = transport->rank() == 0;
  const std::string error = trainer::agreed_error(*transport, own, kPatienceAtStart);
  if (!error.empty()) {
    if (first) trainer::say_error(error);
    transport.reset();  // MPI waits here for rank 0, without which the launcher might end it before the line
    return 1;
  }
  CollectivesReport report;
  int nodes = 0;
  for (int rank = 0; rank < transport->size(); ++rank)
    nodes = std::max(nodes, transport->peer(rank).node + 1);
  report.over =
      fmt::format("{} processes on {} host{}, over MPI", transport->size(), nodes, nodes == 1 ? "" : "s");
  return job.run(std::move(transport), report);
}

int run_threads(Job& job, int ranks) {
  job.prepare(ranks);
  job.check_files();
  job.threads = true;
  int code = kDone;  // written by rank 0 alone
  backends::threads::run_ranks(ranks, [&](std::unique_ptr<hal::Transport> transport) {
    CollectivesReport report;
    report.over = fmt::format("{} threads of one process", transport->size());
    const bool first = transport->rank() == 0;
    const int its_code = job.run(std::move(transport), report);
    if (first) code = its_code;
  });
  return code;
}

int collectives_run(const CollectiveOptions& options) {
  const mpi::Environment environment = mpi::own_environment();
  // Threads may be asked for in a batch script of Slurm, but not under a launcher.
  std::optional<std::string> launcher;
  if (options.ranks == 0 || environment("OMPI_COMM_WORLD_SIZE") || environment("PMIX_RANK"))
    launcher = mpi::launcher(environment);
  if (launcher && options.ranks > 0)
    throw Error("--ranks", "must not be given where a launcher starts the ranks",
                *launcher + " in the environment");
  Job job{options, {}, {}, {}};
  const trainer::StopSignals stop;
  std::unique_ptr<Progress> progress;
  job.measure.stopped = [&] { return stop.requested(); };
  job.measure.progress = [&](int done, int total, const std::string& what) {  // on rank 0
    if (!progress) progress = std::make_unique<Progress>(options.quiet);
    progress->say(done, total, what);
    if (done + 1 == total) progress.reset();
  };
  return launcher ? run_processes(job) : run_threads(job, options.ranks > 0 ? options.ranks : 2);
}

}  // namespace

void add_collectives(CLI::App& bench, const trainer::Registries&, trainer::Action& action) {
  CLI::App* command = bench.add_subcommand(
      "collectives",
      "Time messages between ranks and the collectives made of them, beside what a fit predicts");
  auto options = std::make_shared<CollectiveOptions>();
  command
      ->add_option("--ranks", options->ranks, "Ranks that are threads of this process; without a launcher 2")
      ->check(CLI::Range(2, 64));
  command
      ->add_option(
          "--link", options->link,
          "Emulate a link, by sleeping: 'latency=0.2ms bandwidth=100MB/s jitter=50us', of which jitter may "
          "be left out")
      ->type_name("LINK");
  command
      ->add_option("--slow", options->slow,
                   "RANK:FACTOR,...: the emulated ports of these ranks are so many times slower")
      ->type_name("RANK:FACTOR");
  command->add_option("--sizes", options->sizes, "Bytes of each rank's input (1KiB,32KiB,1MiB,4MiB)")
      ->type_name("SIZE,...");
  command->add_option("--time-per-case", options->time, "Seconds of samples per row (0.2)")
      ->type_name("TIME");
  command
      ->add_option("--patience", options->patience,
                   "How long a rank may owe a message before the job ends and names it (60)")
      ->type_name("TIME");
  command->add_flag(
      "--checked", options->checked,
      "Compare op, path, bytes and order of every message on both sides, at the cost of another one");
  add_optional_file(*command, "--json", options->json,
                    "Write JSON to FILE, or to stdout instead of the table");
  command->add_flag("--quiet", options->quiet, "Print no progress on stderr");
  refuse_empty(*command, {"--link", "--slow", "--sizes", "--time-per-case", "--patience"});
  command->footer(
      "Ranks are threads, or the processes that mpirun or srun --mpi=pmix started; rank 0 prints. The link "
      "is that "
      "between\n"
      "rank 0 and a rank on another host, else rank 1: alpha + bytes / bandwidth is fitted to round trips, "
      "and gap "
      "is what\n"
      "each further message adds. A collective is predicted by the messages and bytes of the busiest rank, "
      "and what "
      "every\n"
      "rank holds is compared with a reference. reduce_scatter is an all_to_all and sums in the order of "
      "ranks, "
      "whose time\n"
      "the prediction leaves out. Each row is the median of 5 samples; the slowest rank counts. The fit of a "
      "link "
      "that is not\n"
      "emulated is kept, and `meshloom plan --mesh` predicts the time of moves with it.\n" +
      std::string(
          "Examples:\n"
          "  meshloom bench collectives --ranks 3 --sizes 64KiB\n"
          "  meshloom bench collectives --ranks 4 --link 'latency=0.2ms bandwidth=100MB/s' --sizes 64KiB\n"
          "  mpirun -n 4 meshloom bench collectives --json collectives.json"));
  command->callback([=, &action] { action = [=] { return collectives_run(*options); }; });
}

}  // namespace meshloom::bench
