// One rank of a job that tests/mesh/mpi_test.cpp starts: mesh_ranks WHAT.
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "backends/mpi/backend.h"
#include "hal/wrappers/checked_transport.h"
#include "hal/wrappers/counted_transport.h"
#include "hal/wrappers/delayed_transport.h"
#include "tests/mesh/ranks.h"
#include "trainer/execute/exchange.h"

namespace meshloom::tests {
namespace {

namespace mpi = backends::mpi;

void gather(hal::Transport& transport, const std::string& op, double patience) {
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(transport.size()), 4);
  Bytes input(4), output(4 * sizes.size());
  const std::span<std::byte> tensors[] = {input, output};
  trainer::exchange(transport, trainer::all_ranks(transport),
                    kernels::collective::all_gather(sizes, transport.rank()), tensors,
                    {0, op, "decoder/layer0"}, patience);
}

void run(const std::string& what, std::unique_ptr<hal::Transport>& transport) {
  const int rank = transport->rank();
  if (what == "random") {
    if (rank == 0 && transport->peer(0).host.empty()) throw Error("rank 0", "must know its host", "no name");
    hal::TrafficCount count;
    transport = hal::counted(std::move(transport), count);
    const auto ranks = static_cast<std::size_t>(transport->size());
    ExpectedTraffic wanted{std::vector<std::int64_t>(ranks), std::vector<std::int64_t>(ranks),
                           std::vector<std::int64_t>(ranks), std::vector<std::int64_t>(ranks)};
    std::string problem = run_random_collectives(*transport, 31, 40, 20000, &wanted);
    for (std::size_t peer = 0; peer < ranks; ++peer)
      if (count.sent[peer].bytes != wanted.sent[peer] || count.received[peer].bytes != wanted.received[peer])
        problem = "other bytes are counted than the lists move";
    if (!problem.empty()) throw Error("random", "must equal the reference", problem);
    transport = hal::checked(hal::delayed(std::move(transport), {1e-4, 200e6, 2e-4}));
    problem = run_random_collectives(*transport, 900, 10, 3000);
    if (!problem.empty()) throw Error("random, checked and delayed", "must equal the reference", problem);
    std::printf("rank %d is right\n", rank);
  } else if (what == "long") {
    const std::vector<std::int64_t> sizes{2 * hal::kMaxMessageBytes + 5, 7, 0};
    Bytes input(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]), std::byte{7});
    Bytes output(static_cast<std::size_t>(sizes[static_cast<std::size_t>((rank + 2) % 3)]));
    const std::span<std::byte> tensors[] = {input, output};
    trainer::exchange(*transport, trainer::all_ranks(*transport), kernels::collective::shift(sizes, 1, rank),
                      tensors, {0, "shift", ""}, 60);
    if (output != Bytes(output.size(), std::byte{7})) throw Error("long", "must arrive", "other bytes");
    std::printf("rank %d is right\n", rank);
  } else if (what == "abort") {
    if (rank == 1) transport->abort("the loss is NaN");
    gather(*transport, "all_gather", 60);
  } else if (what == "throw") {
    if (rank == 2) throw Error("disk", "must have room", "none");
    gather(*transport, "all_gather", 60);
  } else if (what == "kill") {
    if (rank == 2) ::raise(SIGKILL);
    gather(*transport, "all_gather", 60);
  } else if (what == "silent") {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
    gather(*transport, "all_gather", 0.3);
  } else if (what == "differ") {
    transport = hal::checked(std::move(transport));
    gather(*transport, rank == 2 ? "all_to_all" : "all_gather", 60);
  } else if (what == "size") {
    Bytes bytes(rank == 0 ? 8 : 5);
    std::vector<std::unique_ptr<hal::Request>> open;
    if (rank == 0) open.push_back(transport->send(1, {3, "shift", "w"}, bytes));
    if (rank == 1) open.push_back(transport->receive(0, {3, "shift", "w"}, bytes));
    hal::wait(open);
    gather(*transport, "all_gather", 60);
  } else {
    throw Error("mesh_ranks", "must be told what to do", "'" + what + "'");
  }
}

}  // namespace
}  // namespace meshloom::tests

int main(int argc, char** argv) {
  using namespace meshloom;
  std::unique_ptr<hal::Transport> transport;
  try {
    transport = backends::mpi::connect(backends::mpi::own_environment());
    tests::run(argc > 1 ? argv[1] : "", transport);
  } catch (const std::exception& error) {
    if (transport) transport->abort(error.what());
    std::fprintf(stderr, "mesh_ranks: %s\n", error.what());
    return 1;
  }
  return 0;
}
