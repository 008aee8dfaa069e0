#include "backends/simt/inspect/loops.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace meshloom::backends::simt::isa {
namespace {

constexpr std::size_t kMaxIterationLength = 2'000'000;  // instructions; loops inside a longer one count once

using Iteration = std::vector<const Instruction*>;

class Walk {
 public:
  Walk(const std::vector<Block>& blocks, const std::vector<Loop>& loops) : blocks_(blocks), loops_(loops) {}

  // The instructions of one iteration. `guessed` is set where an inner loop's trip count is not known.
  Iteration iteration(const Loop& loop, bool& guessed) const {
    Iteration made;
    std::set<std::size_t> seen;
    std::map<std::size_t, std::size_t> longest_paths;
    for (std::size_t at = loop.header; seen.insert(at).second;) {
      if (const Loop* inner = at == loop.header ? nullptr : inside(loop, at)) {
        const Iteration once = iteration(*inner, guessed);
        std::int64_t trip_count = inner->trip_count.value_or(1);
        if (!inner->trip_count || once.size() * static_cast<std::size_t>(trip_count) > kMaxIterationLength) {
          guessed = true;
          trip_count = 1;
        }
        for (std::int64_t i = 0; i < trip_count; ++i) made.insert(made.end(), once.begin(), once.end());
        const auto exit = exit_of(*inner, loop);
        if (!exit) break;
        at = *exit;
        continue;
      }
      for (const Instruction& one : blocks_[at].code) made.push_back(&one);
      // Where both ways stay inside, the longer one does the work that the other leaves out.
      std::optional<std::size_t> next;
      for (const std::size_t to : blocks_[at].next)
        if (to != loop.header && loop.blocks.count(to) &&
            (!next ||
             longest_path_from(to, loop, longest_paths) > longest_path_from(*next, loop, longest_paths)))
          next = to;
      if (!next) break;
      at = *next;
    }
    return made;
  }

 private:
  // The instructions of the longest path from a block to the end of the iteration; of loops inside once.
  std::size_t longest_path_from(std::size_t at, const Loop& loop,
                                std::map<std::size_t, std::size_t>& known) const {
    const auto [entry, is_new] = known.emplace(at, 0);  // 0 meanwhile: a loop inside leads back to it
    if (!is_new) return entry->second;
    std::size_t longest = 0;
    for (const std::size_t to : blocks_[at].next)
      if (to != loop.header && loop.blocks.count(to))
        longest = std::max(longest, longest_path_from(to, loop, known));
    return known[at] = longest + blocks_[at].code.size();
  }

  // The loop directly inside `outer` that begins at a block.
  const Loop* inside(const Loop& outer, std::size_t header) const {
    for (const Loop& loop : loops_)
      if (loop.header == header && outer.blocks.count(header)) return &loop;
    return nullptr;
  }
  std::optional<std::size_t> exit_of(const Loop& inner, const Loop& outer) const {
    for (std::size_t from : inner.blocks)
      for (std::size_t to : blocks_[from].next)
        if (!inner.blocks.count(to) && outer.blocks.count(to) && to != outer.header) return to;
    return std::nullopt;
  }

  const std::vector<Block>& blocks_;
  const std::vector<Loop>& loops_;
};

void count(const Iteration& iteration, const Modeled& modeled, hal::LoopInspection& into) {
  double matrix = 0, local = 0;
  for (const Instruction* one : iteration) {
    const Work& work = one->work;
    into.issue_cycles += work.issue;
    into.multiply_cycles += work.multiply;
    matrix += work.matrix;
    local += work.local;
    if (one->unit != Unit::hint) ++into.instructions;
    if (one->unit == Unit::local && work.load_bytes > 0) ++into.local_loads[work.load_bytes];
    if (one->unit == Unit::device && work.load_bytes > 0) ++into.device_loads[work.load_bytes];
    if (one->unit == Unit::scratch) ++into.scratch_accesses;
  }
  if (modeled.local) into.local_cycles = local;
  if (matrix == 0) return;
  // The unit and the issue work at the same time: the busier one is what an iteration takes.
  into.issue_cycles = std::max(into.issue_cycles, matrix);
  into.multiply_cycles = matrix;
}

// Follows two iterations, of which the second is counted: loads may be waited for an iteration later.
void count_waits(const Iteration& iteration, hal::LoopInspection& into) {
  struct Load {
    double multiplied;  // before it
    bool device;        // else private memory, which shares the counter
    int scoreboard;
  };
  std::deque<Load> under_way;
  double multiplied = 0;
  std::int64_t waits = 0, exposed = 0;
  for (const bool counted : {false, true})
    for (const Instruction* one : iteration) {
      const Work& work = one->work;
      std::optional<double> newest;
      const auto come = [&](const Load& load) {
        if (load.device) newest = std::max(load.multiplied, newest.value_or(0));
      };
      if (work.outstanding)
        for (; under_way.size() > *work.outstanding; under_way.pop_front()) come(under_way.front());
      for (int scoreboard : work.waits_for)
        std::erase_if(under_way, [&](const Load& load) {
          if (load.scoreboard != scoreboard) return false;
          come(load);
          return true;
        });
      if (newest && counted) {
        ++waits;
        if (*newest == multiplied) ++exposed;
      }
      multiplied += work.multiply + work.matrix;
      if ((one->unit == Unit::device || one->unit == Unit::scratch) && work.load_bytes > 0)
        under_way.push_back({multiplied, one->unit == Unit::device, work.sets_scoreboard});
    }
  into.waits = waits;
  into.exposed_waits = exposed;
}

bool has_barrier(const std::vector<Block>& blocks, const Loop& loop) {
  return std::any_of(loop.blocks.begin(), loop.blocks.end(), [&](std::size_t i) {
    return std::any_of(blocks[i].code.begin(), blocks[i].code.end(),
                       [](const Instruction& one) { return one.unit == Unit::barrier; });
  });
}

// Of the outermost loops the main one multiplies most; from there inwards while the loop inside still has a barrier and most of
// the products, since what is around it only repeats it. The loop of the products lies inwards from there while one loop has
// most of them.
void mark_main(const std::vector<Block>& blocks, const std::vector<Loop>& loops,
               std::vector<hal::LoopInspection>& found) {
  const auto best_of = [&](auto belongs) {
    std::optional<std::size_t> best;
    const auto work = [&](std::size_t i) {
      return std::pair(found[i].multiply_cycles, found[i].issue_cycles);
    };
    for (std::size_t i = 0; i < loops.size(); ++i)
      if (belongs(i) && (!best || work(i) > work(*best))) best = i;
    return best;
  };
  const auto inwards = [&](std::size_t from, auto may_enter) {
    while (true) {
      const auto inner = best_of([&](std::size_t i) {
        return loops[i].depth == loops[from].depth + 1 && loops[from].blocks.count(loops[i].header);
      });
      if (!inner || !may_enter(*inner)) return from;
      const double trip_count = static_cast<double>(loops[*inner].trip_count.value_or(1));
      if (2 * trip_count * found[*inner].multiply_cycles < found[from].multiply_cycles ||
          found[*inner].multiply_cycles == 0)
        return from;
      from = *inner;
    }
  };
  const auto outermost = best_of([&](std::size_t i) { return loops[i].depth == 0; });
  if (!outermost) return;
  const std::size_t main = inwards(*outermost, [&](std::size_t i) { return has_barrier(blocks, loops[i]); });
  found[main].main = true;
  found[inwards(main, [](std::size_t) { return true; })].product = true;
}

}  // namespace

std::vector<hal::LoopInspection> inspect_loops(const std::vector<Block>& blocks,
                                               const std::vector<Loop>& loops, const Modeled& modeled) {
  std::vector<hal::LoopInspection> found;
  if (loops.empty()) {
    Iteration all;
    for (const Block& block : blocks)
      for (const Instruction& one : block.code) all.push_back(&one);
    hal::LoopInspection whole;
    whole.label = "(no loop)";
    whole.innermost = whole.main = whole.product = true;
    count(all, modeled, whole);
    if (modeled.waits) whole.waits = whole.exposed_waits = 0;
    return {whole};
  }
  const Walk walk(blocks, loops);
  for (const Loop& loop : loops) {
    hal::LoopInspection one;
    one.label = blocks[loop.header].label;
    one.depth = loop.depth;
    one.innermost = loop.innermost;
    const Iteration iteration = walk.iteration(loop, one.guessed);
    count(iteration, modeled, one);
    if (modeled.waits) count_waits(iteration, one);
    found.push_back(std::move(one));
  }
  mark_main(blocks, loops, found);
  return found;
}

}  // namespace meshloom::backends::simt::isa
