// Scratch memory of one worker: it is kept from one work item to the next, its contents are not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace meshloom::backends::cpu {

// Cuts this thread's scratch into aligned, uninitialised pieces of floats[i] floats, which pieces[i] then points to.
// Valid until the thread cuts its scratch again.
void cut_scratch(std::span<const std::int64_t> floats, std::span<float*> pieces);

// The pieces in the order of `floats`, for a structured binding: const auto [a, b] = thread_scratch({n, m});
template <std::size_t N>
std::array<float*, N> thread_scratch(const std::int64_t (&floats)[N]) {
  std::array<float*, N> pieces;
  cut_scratch(floats, pieces);
  return pieces;
}

// Many pieces, named by an enum whose last enumerator is `count`. Sizes that are not set are 0.
template <typename Slot>
class ScratchSlots {
 public:
  std::int64_t& floats(Slot slot) { return floats_[static_cast<std::size_t>(slot)]; }
  // Cuts the scratch, once all sizes are set.
  void cut() { cut_scratch(floats_, pieces_); }
  float* operator[](Slot slot) const { return pieces_[static_cast<std::size_t>(slot)]; }

 private:
  static constexpr auto kCount = static_cast<std::size_t>(Slot::count);
  std::array<std::int64_t, kCount> floats_{};
  std::array<float*, kCount> pieces_{};
};

}  // namespace meshloom::backends::cpu
