#include "backends/cpu/kernels/flash_attention/flash_attention_splash.h"

#include "backends/cpu/kernels/flash_attention/flash_attention_streamed.h"

namespace meshloom::backends::cpu {
namespace {

void extend(std::vector<SplashRun>& runs, std::int64_t block, bool masked) {
  if (!runs.empty() && runs.back().masked == masked && runs.back().begin + runs.back().count == block)
    ++runs.back().count;
  else
    runs.push_back({static_cast<std::int32_t>(block), 1, masked});
}

constexpr std::size_t kHeader = sizeof(FlashWork) / sizeof(hal::Word) + 2;

}  // namespace

std::vector<std::vector<SplashRun>> splash_rows(const FlashWork& work) {
  std::vector<std::vector<SplashRun>> rows(static_cast<std::size_t>(work.tiles_q()));
  const kernels::AttentionMask mask = work.mask();
  for (std::int64_t row = 0; row < work.tiles_q(); ++row) {
    const std::int64_t q0 = row * work.tile_q, q_end = std::min<std::int64_t>(work.s, q0 + work.tile_q);
    for (std::int64_t block = 0; block < work.tiles_k(); ++block) {
      const std::int64_t k0 = block * work.tile_k, k_end = std::min<std::int64_t>(work.t, k0 + work.tile_k);
      const kernels::Cover cover =
          work.tensors_extend_mask() ? kernels::Cover::partial : mask.window_cover(q0, q_end, k0, k_end);
      if (cover != kernels::Cover::empty)
        extend(rows[static_cast<std::size_t>(row)], block, cover == kernels::Cover::partial);
    }
  }
  return rows;
}

std::vector<std::vector<SplashRun>> splash_columns(const FlashWork& work) {
  std::vector<std::vector<SplashRun>> columns(static_cast<std::size_t>(work.tiles_k()));
  const std::vector<std::vector<SplashRun>> rows = splash_rows(work);
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (const SplashRun& run : rows[row])
      for (std::int32_t block = run.begin; block < run.begin + run.count; ++block)
        extend(columns[static_cast<std::size_t>(block)], static_cast<std::int64_t>(row), run.masked);
  return columns;
}

std::vector<SplashPart> splash_parts(const FlashWork& work, const std::vector<std::vector<SplashRun>>& rows,
                                     std::int64_t max_words) {
  std::vector<SplashPart> parts;
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t last = first, words = kHeader + 1;
    while (last < rows.size() && words + 1 + rows[last].size() <= static_cast<std::size_t>(max_words))
      words += 1 + rows[last++].size();
    if (last == first)
      throw Error("tpu_splash schedule", "a row of blocks must fit the constants of a dispatch",
                  std::to_string(rows[first].size()) + " runs for " + std::to_string(max_words) + " words");
    SplashPart part{static_cast<std::int32_t>(first), static_cast<std::int32_t>(last - first),
                    to_words(work)};
    part.words.push_back(hal::word(std::int64_t{part.first}));
    part.words.push_back(hal::word(std::int64_t{part.count}));
    std::int64_t runs = 0;
    for (std::size_t row = first; row < last; ++row) {
      part.words.push_back(hal::word(runs));
      runs += static_cast<std::int64_t>(rows[row].size());
    }
    part.words.push_back(hal::word(runs));
    for (std::size_t row = first; row < last; ++row)
      for (const SplashRun& run : rows[row])
        part.words.push_back(hal::word(std::int64_t{run.begin} | std::int64_t{run.count} << 15 |
                                       (run.masked ? std::int64_t{1} << 30 : 0)));
    parts.push_back(std::move(part));
    first = last;
  }
  return parts;
}

SplashSchedule::SplashSchedule(const hal::Word* constants)
    : work_(from_words<FlashWork>(constants)),
      first_(constants[kHeader - 2].i),
      count_(constants[kHeader - 1].i),
      offsets_(constants + kHeader),
      runs_(offsets_ + count_ + 1) {}

namespace {

// Calls visit(block, masked) for the blocks of the schedule's row that the batch row's tensors leave visible.
template <typename F>
void each_block(const SplashSchedule& schedule, const FlashMasks& masks, std::int64_t row, bool by_column,
                F visit) {
  const FlashWork& work = schedule.work();
  const std::int64_t own = schedule.first() + row;
  schedule.each(row, [&](std::int64_t block, bool masked) {
    const std::int64_t q0 = (by_column ? block : own) * work.tile_q,
                       k0 = (by_column ? own : block) * work.tile_k;
    const kernels::Cover cover =
        masks.scheduled(masked ? kernels::Cover::partial : kernels::Cover::full, q0, k0);
    if (cover != kernels::Cover::empty) visit(block, cover == kernels::Cover::partial);
  });
}

}  // namespace

// One work item: one query tile of one head.
void run_flash_splash(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const SplashSchedule schedule(args.constants);
  const FlashWork& work = schedule.work();
  FlashMasks masks(work, args);
  ForwardTile tile(work, args, masks);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item % schedule.rows(), head = item / schedule.rows();
    tile.begin(head / work.h, head % work.h, (schedule.first() + row) * work.tile_q);
    each_block(schedule, masks, row, false,
               [&](std::int64_t block, bool masked) { tile.key_tile(block * work.tile_k, masked); });
    tile.finish();
  }
}

void run_flash_splash_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const SplashSchedule schedule(args.constants);
  const FlashWork& work = schedule.work();
  FlashMasks masks(work, args);
  BackwardTile tile(work, args, masks, 0);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item % schedule.rows(), head = item / schedule.rows();
    tile.query_tile(head / work.h, head % work.h, (schedule.first() + row) * work.tile_q, false, true);
    each_block(schedule, masks, row, false, [&](std::int64_t block, bool masked) {
      tile.key_tile(block * work.tile_k, masked);
      tile.add_dq();
    });
    tile.finish_dq();
  }
}

// One work item: dk and dv of one key tile of one kv head; the schedule is by columns.
void run_flash_splash_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const SplashSchedule schedule(args.constants);
  const FlashWork& work = schedule.work();
  FlashMasks masks(work, args);
  BackwardTile tile(work, args, masks, work.tile_k);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t column = item % schedule.rows(), head = item / schedule.rows();
    const std::int64_t b = head / work.kv, kv = head % work.kv,
                       k0 = (schedule.first() + column) * work.tile_k;
    const std::int64_t count = std::min<std::int64_t>(work.tile_k, work.t - k0);
    tile.begin_keys(count);
    for (std::int64_t h = kv * work.group(); h < (kv + 1) * work.group(); ++h) {
      masks.head(b, h);
      each_block(schedule, masks, column, true, [&](std::int64_t block, bool masked) {
        tile.query_tile(b, h, block * work.tile_q, true, false);
        tile.key_tile(k0, masked);
        tile.add_dkv(0);
      });
    }
    tile.finish_keys(b, kv, k0, count);
  }
}

}  // namespace meshloom::backends::cpu
