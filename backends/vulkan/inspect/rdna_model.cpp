#include "backends/vulkan/inspect/rdna_model.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>

#include "backends/simt/inspect/loops.h"

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

using simt::isa::starts_with_any;

// "v_dual_fmac_f32" -> "fmac_f32"
std::string_view operation(std::string_view name) {
  for (std::string_view prefix : {"v_", "dual_", "pk_"})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

bool is_matrix(std::string_view name) { return starts_with_any(name, {"v_wmma_", "v_swmmac_"}); }

bool multiplies(std::string_view name) {
  if (is_matrix(name)) return true;
  return starts_with_any(operation(name),
                         {"fma_", "fmac_", "fmaak_", "fmamk_", "mad_f", "mac_f", "mad_mix", "dot"});
}

// Those that an RDNA3 issues for both halves of a wave of 64 at once. Source: Mesa 25, src/amd/compiler/aco_statistics.cpp
// (is_dual_issue_capable), without v_fma_mix, of which the operands decide.
bool issues_dual(std::string_view name) {
  return !name.starts_with("v_pk_") &&
         starts_with_any(
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
  return starts_with_any(operation(name), {"mul_lo_u32", "mul_lo_i32", "mul_hi_u32", "mul_hi_i32",
                                           "mad_u64_u32", "mad_i64_i32", "mad_co_u64_u32", "mad_co_i64_i32"});
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

simt::isa::Work work_of(const Instruction& one, const Family& family, std::int64_t wave) {
  simt::isa::Work work;
  const Cost cost = cost_of(one, family, wave);
  work.issue = cost.issue;
  work.multiply = cost.multiply;
  const int bytes = bytes_of(one.name);
  if (one.unit == Unit::local)
    work.local = std::max(4, bytes) * static_cast<double>(wave) / kLocalBytesPerCycle;
  const bool memory = one.unit == Unit::local || one.unit == Unit::device || one.unit == Unit::scratch;
  if (memory && reads(one.name)) work.load_bytes = bytes;
  if (one.unit == Unit::wait) work.outstanding = loads_left(one);
  return work;
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
  std::vector<Block> blocks = parse_listing(listing);
  for (Block& block : blocks)
    for (Instruction& one : block.code) one.work = work_of(one, family, wave);
  return simt::isa::inspect_loops(blocks, simt::isa::find_loops(blocks, induction_of),
                                  {.waits = true, .local = true});
}

}  // namespace meshloom::backends::vulkan::rdna
