#include "backends/vulkan/inspect/rdna_model.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>

namespace meshloom::backends::vulkan::rdna {
namespace {

// Source: Mesa, src/amd/common/ac_gpu_info.c (num_physical_wave64_vgprs_per_simd), and LLVM, AMDGPUBaseInfo.cpp
// (getVGPRAllocGranule); names as RADV gives them, and those of Mesa 22 for RDNA3.
constexpr std::array kFamilies{
    Family{"NAVI21", 2, 1024, 16},  Family{"NAVI22", 2, 1024, 16},  Family{"NAVI23", 2, 1024, 16},
    Family{"NAVI24", 2, 1024, 16},  Family{"VANGOGH", 2, 1024, 16}, Family{"REMBRANDT", 2, 1024, 16},
    Family{"NAVI31", 3, 1536, 24},  Family{"NAVI32", 3, 1536, 24},  Family{"NAVI33", 3, 1024, 16},
    Family{"PHOENIX", 3, 1024, 16}, Family{"GFX1100", 3, 1536, 24}, Family{"GFX1101", 3, 1536, 24},
    Family{"GFX1102", 3, 1024, 16}, Family{"GFX1103", 3, 1024, 16}, Family{"GFX1150", 3, 1024, 16},
    Family{"GFX1151", 3, 1536, 24}, Family{"GFX1200", 4, 1536, 24}, Family{"GFX1201", 4, 1536, 24},
};
// Of a workgroup processor, on all of which RADV runs a workgroup (radv_should_use_wgp_mode, up to Mesa 25 at least).
constexpr std::int64_t kMaxWaves = 16, kLocalBytes = 131072, kSimds = 4;
// Of local memory for one SIMD while the others ask for as much: two times 128 a cycle are shared by four.
constexpr double kLocalBytesPerCycle = 64;
constexpr double kMatrixCycles = 32, kMatrixCyclesRdna4 = 16;  // of one product of 16x16x16
constexpr std::size_t kLongestTurn = 2'000'000;  // instructions; loops inside a longer one count once

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view one) { return name.starts_with(one); });
}

// "v_dual_fmac_f32" -> "fmac_f32"
std::string_view operation(std::string_view name) {
  for (std::string_view prefix : {"v_", "dual_", "pk_"})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

bool is_matrix(std::string_view name) { return is_one_of(name, {"v_wmma_", "v_swmmac_"}); }

bool multiplies(std::string_view name) {
  if (is_matrix(name)) return true;
  return is_one_of(operation(name),
                   {"fma_", "fmac_", "fmaak_", "fmamk_", "mad_f", "mac_f", "mad_mix", "dot"});
}

// Those that an RDNA3 issues for both halves of a wave of 64 at once. Source: Mesa 25, src/amd/compiler/aco_statistics.cpp
// (is_dual_issue_capable), without v_fma_mix, of which the operands decide.
bool issues_dual(std::string_view name) {
  return !name.starts_with("v_pk_") &&
         is_one_of(
             operation(name),
             {"fma_f32",     "fmac_f32",    "fmaak_f32",  "fmamk_f32",  "mul_f32",          "add_f32",
              "sub_f32",     "subrev_f32",  "max_f32",    "min_f32",    "mul_dx9_zero_f32", "mul_legacy_f32",
              "fma_f16",     "fmac_f16",    "fmaak_f16",  "fmamk_f16",  "mul_f16",          "add_f16",
              "sub_f16",     "subrev_f16",  "max_f16",    "min_f16",    "mov_b32",          "mov_b16",
              "cndmask_b32", "cndmask_b16", "add_nc_u16", "add_nc_i16", "sub_nc_u16",       "sub_nc_i16",
              "mad_u16",     "mad_i16",     "mul_lo_u16", "max_u16",    "max_i16",          "min_u16",
              "min_i16",     "and_b16",     "or_b16",     "xor_b16",    "not_b16",          "lshlrev_b16",
              "lshrrev_b16", "ashrrev_i16", "dot2_",      "dot2c_",     "dot2acc_"});
}

bool is_quarter_rate(std::string_view name) {
  return is_one_of(operation(name), {"mul_lo_u32", "mul_lo_i32", "mul_hi_u32", "mul_hi_i32", "mad_u64_u32",
                                     "mad_i64_i32", "mad_co_u64_u32", "mad_co_i64_i32"});
}

bool is_f64(std::string_view name) { return name.find("_f64") != std::string_view::npos; }

bool reads(std::string_view name) {
  return name.find("load") != std::string_view::npos || name.find("read") != std::string_view::npos;
}

// Bytes per invocation that an access to memory moves.
int bytes_of(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  const int times = has("2addr") || has("read2") || has("write2") ? 2 : 1;
  if (has("x4") || has("b128")) return 16;
  if (has("x3") || has("b96")) return 12;
  if (has("x2") || has("b64")) return 8 * times;
  if (has("u16") || has("i16") || has("short") || has("b16") || has("d16_hi")) return 2;
  if (has("u8") || has("i8") || has("byte") || has("b8")) return 1;
  return 4 * times;
}

// How many loads a wait leaves under way; none where it does not wait for loads.
std::optional<std::size_t> loads_left(const Instruction& wait) {
  std::string all = wait.name;
  for (const std::string& operand : wait.operands) all += " " + operand;
  if (const std::size_t at = all.find("vmcnt("); at != std::string::npos)
    return static_cast<std::size_t>(std::strtoul(all.c_str() + at + 6, nullptr, 0));
  if (!wait.name.starts_with("s_wait_loadcnt") || wait.operands.empty()) return std::nullopt;
  const std::size_t value = std::strtoul(wait.operands.back().c_str(), nullptr, 0);
  return wait.name == "s_wait_loadcnt_dscnt" ? value >> 8 : value;
}

using Turn = std::vector<const Instruction*>;

class Walk {
 public:
  Walk(const std::vector<Block>& blocks, const std::vector<Loop>& loops) : blocks_(blocks), loops_(loops) {}

  // The instructions of one turn. `guessed` is set where an inner loop's turns are not known.
  Turn turn(const Loop& loop, bool& guessed) const {
    Turn made;
    std::set<std::size_t> seen;
    for (std::size_t at = loop.header; seen.insert(at).second;) {
      if (const Loop* inner = at == loop.header ? nullptr : inside(loop, at)) {
        const Turn once = turn(*inner, guessed);
        std::int64_t turns = inner->turns.value_or(1);
        if (!inner->turns || once.size() * static_cast<std::size_t>(turns) > kLongestTurn) {
          guessed = true;
          turns = 1;
        }
        for (std::int64_t i = 0; i < turns; ++i) made.insert(made.end(), once.begin(), once.end());
        const auto exit = exit_of(*inner, loop);
        if (!exit) break;
        at = *exit;
        continue;
      }
      for (const Instruction& one : blocks_[at].code) made.push_back(&one);
      // Where both ways stay inside, the one that falls through does the work that the other leaves out.
      const auto next = std::find_if(blocks_[at].next.begin(), blocks_[at].next.end(), [&](std::size_t to) {
        return to != loop.header && loop.blocks.count(to);
      });
      if (next == blocks_[at].next.end()) break;
      at = *next;
    }
    return made;
  }

 private:
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

void count(const Turn& turn, const Family& family, std::int64_t wave, hal::LoopInspection& into) {
  for (const Instruction* one : turn) {
    const Cost cost = cost_of(*one, family, wave);
    into.issue_cycles += cost.issue;
    into.multiply_cycles += cost.multiply;
    if (one->unit != Unit::hint) ++into.instructions;
    const int bytes = bytes_of(one->name);
    if (one->unit == Unit::local) {
      into.local_cycles += std::max(4, bytes) * static_cast<double>(wave) / kLocalBytesPerCycle;
      if (reads(one->name)) ++into.local_loads[bytes];
    } else if (one->unit == Unit::device && reads(one->name)) {
      ++into.device_loads[bytes];
    } else if (one->unit == Unit::scratch) {
      ++into.scratch_accesses;
    }
  }
}

// Follows two turns, of which the second is counted: loads may be waited for a turn later.
void count_waits(const Turn& turn, const Family& family, std::int64_t wave, hal::LoopInspection& into) {
  struct Load {
    double multiplied;  // before it
    bool device;        // else private memory, which shares the counter
  };
  std::deque<Load> under_way;
  double multiplied = 0;
  for (const bool counted : {false, true})
    for (const Instruction* one : turn) {
      multiplied += cost_of(*one, family, wave).multiply;
      if ((one->unit == Unit::device || one->unit == Unit::scratch) && reads(one->name))
        under_way.push_back({multiplied, one->unit == Unit::device});
      if (one->unit != Unit::wait) continue;
      const auto left = loads_left(*one);
      if (!left) continue;
      std::optional<double> newest;
      for (; under_way.size() > *left; under_way.pop_front())
        if (under_way.front().device) newest = under_way.front().multiplied;
      if (!newest || !counted) continue;
      ++into.waits;
      if (*newest == multiplied) ++into.exposed_waits;
    }
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
      const double turns = static_cast<double>(loops[*inner].turns.value_or(1));
      if (2 * turns * found[*inner].multiply_cycles < found[from].multiply_cycles ||
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

const Family* family_of(std::string_view device_name) {
  const std::size_t at = device_name.find("(RADV ");
  if (at == std::string_view::npos) return nullptr;
  const std::string_view behind = device_name.substr(at + 6);
  const std::string_view name = behind.substr(0, behind.find_first_of(") "));
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const Family& family) { return family.name == name; });
  return found == kFamilies.end() ? nullptr : &*found;
}

double waves_of(const Family& family, std::int64_t registers, std::int64_t local_bytes,
                std::int64_t workgroup, std::int64_t wave) {
  const std::int64_t halves = wave / 32, granule = family.granule / halves;
  const std::int64_t taken = (std::max<std::int64_t>(registers, 1) + granule - 1) / granule * granule;
  const std::int64_t by_registers = std::min(kMaxWaves, family.registers / halves / taken);
  const std::int64_t of_group = (workgroup + wave - 1) / wave;
  std::int64_t groups = by_registers * kSimds / of_group;
  if (local_bytes > 0) groups = std::min(groups, kLocalBytes / local_bytes);
  groups = std::max<std::int64_t>(groups, 1);  // a workgroup that is larger would not have been compiled
  return std::min(static_cast<double>(kMaxWaves), static_cast<double>(groups * of_group) / kSimds);
}

Cost cost_of(const Instruction& instruction, const Family& family, std::int64_t wave) {
  if (instruction.unit != Unit::vector) return {};
  const std::string_view name = instruction.name;
  if (!instruction.pair.empty())
    return {1, 0.5 * (multiplies(name) ? 1 : 0) + 0.5 * (multiplies(instruction.pair) ? 1 : 0)};
  const auto passes = static_cast<double>(wave) / 32;
  double cycles = passes;
  if (is_matrix(name))
    cycles = family.generation >= 4 ? kMatrixCyclesRdna4 : kMatrixCycles;
  else if (is_f64(name))
    cycles = 16 * passes;
  else if (is_quarter_rate(name))
    cycles = 4 * passes;
  else if (wave == 64 && family.generation >= 3 && issues_dual(name))
    cycles = 1;
  return {cycles, multiplies(name) ? cycles : 0};
}

std::vector<hal::LoopInspection> inspect_loops(std::string_view listing, const Family& family,
                                               std::int64_t wave) {
  const std::vector<Block> blocks = parse_listing(listing);
  const std::vector<Loop> loops = find_loops(blocks);
  std::vector<hal::LoopInspection> found;
  if (loops.empty()) {
    Turn all;
    for (const Block& block : blocks)
      for (const Instruction& one : block.code) all.push_back(&one);
    hal::LoopInspection whole;
    whole.label = "(no loop)";
    whole.innermost = whole.main = whole.product = true;
    count(all, family, wave, whole);
    return {whole};
  }
  const Walk walk(blocks, loops);
  for (const Loop& loop : loops) {
    hal::LoopInspection one;
    one.label = blocks[loop.header].label;
    one.depth = loop.depth;
    one.innermost = loop.innermost;
    const Turn turn = walk.turn(loop, one.guessed);
    count(turn, family, wave, one);
    count_waits(turn, family, wave, one);
    found.push_back(std::move(one));
  }
  mark_main(blocks, loops, found);
  return found;
}

}  // namespace meshloom::backends::vulkan::rdna
