// What every place of a group holds after a collective, written down without moves: the oracle of tests and benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace meshloom::kernels::collective {

using Bytes = std::vector<std::byte>;

// `inputs` are those of all places, and so are the results. The sizes are what kernels/collective/moves.h says.
std::vector<Bytes> all_gather_reference(std::span<const Bytes> inputs);
std::vector<Bytes> all_to_all_reference(std::span<const Bytes> inputs, std::span<const std::int64_t> sizes);
std::vector<Bytes> gather_to_reference(std::span<const Bytes> inputs, int root);
std::vector<Bytes> scatter_from_reference(std::span<const Bytes> inputs, std::span<const std::int64_t> sizes,
                                          int root);
std::vector<Bytes> shift_reference(std::span<const Bytes> inputs, int by);

}  // namespace meshloom::kernels::collective
