// Random numbers as pure functions of a key and a counter (Philox4x32-10: Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", 2011). A module's key is the run's key with its path folded in, so that its numbers depend neither
// on the order of calls nor on its siblings.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace meshloom::layers {

struct Key {
  std::uint64_t value = 0;
  bool operator==(const Key&) const = default;
};

// 128 random bits.
std::array<std::uint32_t, 4> philox(Key key, std::uint64_t counter, std::uint64_t stream = 0);

// The key of a child. Different names give unrelated keys.
Key fold_in(Key key, std::string_view name);
// fold_in() for each name of a path: fold_in_path(k, "a/b") = fold_in(fold_in(k, "a"), "b"); the path "" gives k.
Key fold_in_path(Key key, std::string_view path);

// Element `index` of the key's uniform sequence, in (0, 1].
double uniform(Key key, std::uint64_t index, std::uint64_t stream = 0);
// Elements [begin, begin + count) of the key's standard normal sequence (Box and Muller, 1958).
void normal(Key key, std::uint64_t begin, std::int64_t count, float* into);

}  // namespace meshloom::layers
