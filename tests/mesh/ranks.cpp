#include "tests/mesh/ranks.h"

#include "trainer/execute/exchange.h"

namespace meshloom::tests {
namespace {

namespace collective = kernels::collective;

std::vector<std::int64_t> random_sizes(std::mt19937_64& random, std::size_t count, std::int64_t max_bytes) {
  std::vector<std::int64_t> sizes(count);
  for (std::int64_t& size : sizes)
    size = random() % 3 == 0
               ? 0
               : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(max_bytes + 1));
  return sizes;
}

Bytes random_bytes(std::mt19937_64& random, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

RandomCollective random_collective(std::uint64_t seed, int ranks, std::int64_t max_bytes) {
  std::mt19937_64 random(seed);
  const auto n = static_cast<std::size_t>(ranks);
  RandomCollective made;
  const int kind = static_cast<int>(random() % 5);
  const int by = static_cast<int>(random() % 9) - 4, root = static_cast<int>(random() % n);
  const std::vector<std::int64_t> sizes = random_sizes(random, kind == 1 ? n * n : n, max_bytes);
  for (std::size_t rank = 0; rank < n; ++rank) {
    std::int64_t bytes = kind == 1 ? 0 : sizes[rank];
    if (kind == 4 && static_cast<int>(rank) == root) bytes = collective::Sizes(sizes).total();
    for (std::size_t to = 0; kind == 1 && to < n; ++to) bytes += sizes[rank * n + to];
    made.inputs.push_back(random_bytes(random, bytes));
  }
  for (int rank = 0; rank < ranks; ++rank)
    made.lists.push_back(
        kind == 0   ? collective::all_gather(sizes, rank)
        : kind == 1 ? collective::all_to_all(sizes, ranks, rank)
        : kind == 3 ? collective::expanded(collective::gather_to(sizes, root, rank), ranks, rank)
        : kind == 4 ? collective::expanded(collective::scatter_from(sizes, root, rank), ranks, rank)
                    : collective::shift(sizes, by, rank));
  made.op = kind == 0   ? "all_gather"
            : kind == 1 ? "all_to_all"
            : kind == 2 ? "shift by " + std::to_string(by)
                        : (kind == 3 ? "gather_to " : "scatter_from ") + std::to_string(root);
  made.outputs = kind == 0   ? collective::all_gather_reference(made.inputs)
                 : kind == 1 ? collective::all_to_all_reference(made.inputs, sizes)
                 : kind == 3 ? collective::gather_to_reference(made.inputs, root)
                 : kind == 4 ? collective::scatter_from_reference(made.inputs, sizes, root)
                             : collective::shift_reference(made.inputs, by);
  return made;
}

std::string run_random_collectives(hal::Transport& transport, std::uint64_t seed, int rounds,
                                   std::int64_t max_bytes, ExpectedTraffic* traffic) {
  const auto rank = static_cast<std::size_t>(transport.rank());
  const std::vector<int> group = trainer::all_ranks(transport);
  for (int round = 0; round < rounds; ++round) {
    RandomCollective made =
        random_collective(seed + static_cast<std::uint64_t>(round), transport.size(), max_bytes);
    const std::size_t bytes = made.outputs[rank].size();
    Bytes output(bytes + 8, std::byte{0x5a});  // and words behind that nothing may touch
    const std::span<std::byte> tensors[] = {made.inputs[rank], std::span(output).first(bytes)};
    const std::string path = "round" + std::to_string(round);
    trainer::exchange(transport, group, made.lists[rank], tensors, {round % 7, made.op, path}, 60);
    Bytes wanted = made.outputs[rank];
    wanted.resize(bytes + 8, std::byte{0x5a});
    if (output != wanted)
      return transport.name(transport.rank()) + ", " + made.op + " of " + path +
             ": other bytes than the reference";
    if (!traffic) continue;
    for (const Move& move : made.lists[rank]) {
      const auto peer = static_cast<std::size_t>(move.peer);
      if (peer == rank) continue;
      (move.out ? traffic->sent : traffic->received)[peer] += move.bytes;
      ++(move.out ? traffic->sent_messages : traffic->received_messages)[peer];
    }
  }
  return "";
}

}  // namespace meshloom::tests
