// The block-sparse schedule of splash attention: which blocks of the mask a row (or a column) of blocks
// visits, and which of them need masking. Made on the host from what the attributes say of the mask, carried
// to the kernel as constants. Where tensors show keys that the window does not (prefix, query_offset) every block
// is in it, and the kernel looks.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/flash_attention/flash_attention_work.h"

namespace meshloom::backends::cpu {

// Blocks [begin, begin + count) along a row; blocks between runs are empty and never visited.
struct SplashRun {
  std::int32_t begin, count;
  bool masked;
};
constexpr std::int64_t kSplashMaxBlocks = (1 << 15) - 1;  // along either axis: what a packed run can say

// One list of runs per query tile, over key tiles.
std::vector<std::vector<SplashRun>> splash_rows(const FlashWork& work);
// One list of runs per key tile, over query tiles.
std::vector<std::vector<SplashRun>> splash_columns(const FlashWork& work);

// The constants of one dispatch: the work, then the schedule of some consecutive rows.
struct SplashPart {
  std::int32_t first = 0, count = 0;  // rows
  std::vector<hal::Word> words;
};
// Cut so that each part has at most `max_words`.
std::vector<SplashPart> splash_parts(const FlashWork& work, const std::vector<std::vector<SplashRun>>& rows,
                                     std::int64_t max_words);

// What the kernel reads back.
class SplashSchedule {
 public:
  explicit SplashSchedule(const hal::Word* constants);
  const FlashWork& work() const { return work_; }
  std::int64_t first() const { return first_; }
  std::int64_t rows() const { return count_; }
  // visit(block, masked) for the blocks of row first() + `row`, in order.
  template <typename F>
  void each(std::int64_t row, F visit) const {
    for (std::int32_t at = offsets_[row].i; at < offsets_[row + 1].i; ++at) {
      const std::uint32_t run = runs_[at].u;
      const std::uint32_t begin = run & 0x7fff, count = run >> 15 & 0x7fff;
      for (std::uint32_t block = begin; block < begin + count; ++block)
        visit(std::int64_t{block}, run >> 30 != 0);
    }
  }

 private:
  FlashWork work_;
  std::int32_t first_, count_;
  const hal::Word *offsets_, *runs_;
};

}  // namespace meshloom::backends::cpu
