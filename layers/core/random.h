// Random numbers as pure functions of a key and a counter (Philox4x32-10: Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", 2011). Keys are folded along the module path, so nobody's numbers depend on
// the order of calls or on who the siblings are.
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

// The key of a child; different names give unrelated keys.
Key fold(Key key, std::string_view name);
// The same along a path: fold_path(k, "a/b") = fold(fold(k, "a"), "b"); "" gives k.
Key fold_path(Key key, std::string_view path);

// In (0, 1]: element `index` of the key's sequence.
double uniform(Key key, std::uint64_t index, std::uint64_t stream = 0);
// Standard normal elements [begin, begin + count) of the key's sequence (Box and Muller, 1958).
void normal(Key key, std::uint64_t begin, std::int64_t count, float* into);

}  // namespace meshloom::layers
