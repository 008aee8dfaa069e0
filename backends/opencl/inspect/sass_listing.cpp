#include "backends/opencl/inspect/sass_listing.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "backends/simt/inspect/loops.h"
#include "hal/error.h"

namespace meshloom::backends::opencl::sass {
namespace {

using simt::isa::Block;
using simt::isa::Induction;
using simt::isa::Instruction;
using simt::isa::starts_with_any;
using simt::isa::stripped;
using simt::isa::Unit;

constexpr int kNoScoreboard = 7;

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

// Ends a group of copies to workgroup memory, or arrives behind them.
bool ends_copies(std::string_view name) { return starts_with_any(name, {"LDGDEPBAR", "LDGSTSBAR"}); }

Unit unit_of(std::string_view name) {
  if (ends_copies(name)) return Unit::wait;
  if (starts_with_any(name, {"LDSM", "LDS", "STS", "ATOMS"})) return Unit::local;
  if (starts_with_any(name, {"LDL", "STL"})) return Unit::scratch;
  if (starts_with_any(name, {"LDG", "STG", "LD.", "ST.", "ATOM", "RED.", "REDG"})) return Unit::device;
  if (starts_with_any(name, {"LDC", "S2R", "S2UR", "CS2R", "R2UR", "U"})) return Unit::scalar;
  if (name.starts_with("BAR")) return Unit::barrier;
  if (starts_with_any(name, {"BRA", "BRX", "JMP", "JMX", "CALL", "RET"})) return Unit::branch;
  if (starts_with_any(name, {"BSSY", "BSYNC", "WARPSYNC", "BREAK", "YIELD", "EXIT", "DEPBAR", "MEMBAR",
                             "ERRBAR", "CCTL", "NANOSLEEP"}))
    return Unit::wait;
  return name == "NOP" ? Unit::hint : Unit::vector;
}

// Bytes per lane that an access of memory moves.
int access_bytes(std::string_view name) {
  // Matrices of 8 x 8 of 16 bits, of which a lane gets two elements each.
  if (name.starts_with("LDSM")) return name.ends_with(".4") ? 16 : name.ends_with(".2") ? 8 : 4;
  if (has(name, ".128")) return 16;
  if (has(name, ".64") && !has(name, ".E.64.")) return 8;
  if (has(name, ".U16") || has(name, ".S16")) return 2;
  if (has(name, ".U8") || has(name, ".S8")) return 1;
  return 4;
}

int load_bytes(std::string_view name) {
  return name.starts_with("LD") && !name.starts_with("LDC") && !ends_copies(name) ? access_bytes(name) : 0;
}

// Cycles of the local memory, at a quarter's share of its 128 bytes a cycle. In tiles of registers lanes read the same addresses,
// which then move once: half of the bytes of wide accesses are counted.
double local_cycles(std::string_view name) {
  constexpr double kShareBytes = 128.0 / 4, kLanes = 32, kWide = 16;
  const double bytes = std::max(4, access_bytes(name));
  return bytes * kLanes / kShareBytes / (bytes >= kWide ? 2 : 1);
}

// FLOP of a product of matrices by a warp; 0 = it is none, or none that is known.
double matrix_flops(std::string_view name) {
  // HGMMA.64x128x16.F32.BF16: by four warps together.
  constexpr std::string_view kWarpgroup = "HGMMA.64x";
  if (name.starts_with(kWarpgroup)) {
    const std::string sizes(name.substr(kWarpgroup.size()));
    return has(sizes, "x16.") ? 2.0 * 64 / 4 * std::atoi(sizes.c_str()) * 16 : 0;
  }
  if (!starts_with_any(name, {"HMMA", "IMMA"})) return 0;
  if (has(name, ".16832")) return 2.0 * 16 * 8 * 32;
  if (has(name, ".16816")) return 2.0 * 16 * 8 * 16;
  if (has(name, ".1688")) return 2.0 * 16 * 8 * 8;
  return 0;
}

bool multiplies(const Instruction& one) {
  if (starts_with_any(one.name, {"FFMA", "DFMA", "IDP"})) return true;
  // Products of zeros are how constants are loaded.
  return one.name.starts_with("HFMA2") &&
         !(one.operands.size() > 1 && starts_with_any(one.operands[1], {"-RZ", "RZ"}));
}

// "`(.L_x_2)" -> ".L_x_2"
std::optional<std::string> label_of(const std::string& operand) {
  if (!operand.starts_with("`(") || !operand.ends_with(")")) return std::nullopt;
  return operand.substr(2, operand.size() - 3);
}

// Reads the number in "/* 0x0001e80000000c00 */", wherever it stands.
std::optional<std::uint64_t> encoding(std::string_view line) {
  const std::size_t at = line.rfind("/* 0x");
  if (at == std::string_view::npos) return std::nullopt;
  return std::strtoull(std::string(line.substr(at + 5, 16)).c_str(), nullptr, 16);
}

// Bits 105 and on of the encoding: cycles of stall (4), yield, the scoreboards that are set when results have come and when
// operands were read (3 each), and a mask of those that are waited for. Source: Jia and others, "Dissecting the NVIDIA Volta GPU
// Architecture via Microbenchmarking" (2018), section 2.1; later families are the same.
void read_scoreboards(Instruction& one, std::uint64_t upper) {
  const std::uint64_t control = upper >> 41;
  const int set = static_cast<int>(control >> 5 & 7);
  if (set != kNoScoreboard) one.work.sets_scoreboard = set;
  for (int board = 0; board < 6; ++board)
    if (control >> (11 + board) & 1) one.work.waits_for.push_back(board);
}

Instruction instruction(std::string_view code, double flops_per_cycle, double int8_per_cycle) {
  Instruction one;
  bool predicated = false;
  // "@!PT LDS RZ, [RZ]" never runs; ptxas puts it in front of copies to workgroup memory.
  if (code.starts_with("@!PT")) code = "NOP";
  if (code.starts_with('@')) {
    const std::size_t space = code.find_first_of(" \t");
    predicated = true;
    code = space == std::string_view::npos ? std::string_view{} : stripped(code.substr(space));
  }
  const std::size_t space = code.find_first_of(" \t");
  one.name = code.substr(0, space);
  one.unit = unit_of(one.name);
  if (space != std::string_view::npos) one.operands = simt::isa::operands_of(code.substr(space));
  if (one.unit == Unit::branch && !one.operands.empty())
    if (auto label = label_of(one.operands.back())) one.targets.push_back(std::move(*label));
  // A branch may have its condition as an operand.
  const bool jumps = starts_with_any(one.name, {"BRA", "BRX", "JMP", "JMX"}) && one.operands.size() == 1;
  one.no_fallthrough = !predicated && (jumps || starts_with_any(one.name, {"EXIT", "RET"}));
  if (one.unit == Unit::hint) return one;
  one.work.issue = 1;
  if (const double flops = matrix_flops(one.name); flops > 0)
    one.work.matrix = flops / (one.name.starts_with("IMMA") ? int8_per_cycle : flops_per_cycle);
  else if (multiplies(one))
    one.work.multiply = 1;
  one.work.load_bytes = load_bytes(one.name);
  if (one.unit == Unit::local) one.work.local = local_cycles(one.name);
  return one;
}

Induction induction_of(const Instruction& one) {
  using What = Induction::What;
  const std::vector<std::string>& operands = one.operands;
  const auto constant = [&](std::size_t i) {
    return i < operands.size() ? simt::isa::number(operands[i]) : std::nullopt;
  };
  if (starts_with_any(one.name, {"MOV", "UMOV"}) && operands.size() == 2) {
    if (operands[1] == "RZ" || operands[1] == "URZ") return {What::set, operands[0], 0};
    if (const auto value = constant(1)) return {What::set, operands[0], *value};
  }
  if (starts_with_any(one.name, {"IADD3", "UIADD3"}) && operands.size() >= 4 && operands[0] == operands[1] &&
      constant(2))
    return {What::step, operands[0], *constant(2)};
  // ISETP.LT.AND P0, PT, R4, 0x10, PT
  if (starts_with_any(one.name, {"ISETP", "UISETP"}) && operands.size() >= 4 && constant(3))
    return {What::compare, operands[2], *constant(3)};
  return {};
}

}  // namespace

std::vector<Block> parse_listing(std::string_view text, double flops_per_cycle, double int8_per_cycle) {
  std::vector<Block> blocks;
  std::size_t count = 0, encoded = 0;
  while (!text.empty()) {
    const std::string_view line = simt::isa::next_line(text);
    const std::string_view inside = stripped(line);
    if (inside.ends_with(':') && inside.find(' ') == std::string_view::npos) {
      blocks.push_back({std::string(inside.substr(0, inside.size() - 1)), {}, {}});
      continue;
    }
    if (!inside.starts_with("/*")) continue;
    const std::size_t address = inside.find("*/"), end = inside.find(';');
    if (address == std::string_view::npos || end == std::string_view::npos || end < address) continue;
    Instruction one =
        instruction(stripped(inside.substr(address + 2, end - address - 2)), flops_per_cycle, int8_per_cycle);
    if (one.name.empty()) continue;
    ++count;
    std::string_view ahead = text;
    const std::string_view second = stripped(simt::isa::next_line(ahead));
    if (second.starts_with("/* 0x"))
      if (const auto upper = encoding(second)) {
        read_scoreboards(one, *upper);
        ++encoded;
        text = ahead;
      }
    simt::isa::append(blocks, std::move(one));
  }
  if (count == 0) throw hal::Error("listing", "must have instructions", "none");
  if (encoded < count)
    throw hal::Error("listing", "must have the encoding of each instruction",
                     std::to_string(encoded) + " of " + std::to_string(count));
  simt::isa::connect(blocks);
  return blocks;
}

std::vector<hal::LoopInspection> inspect_loops(const std::vector<Block>& blocks) {
  return simt::isa::inspect_loops(blocks, simt::isa::find_loops(blocks, induction_of),
                                  {.waits = true, .local = true});
}

}  // namespace meshloom::backends::opencl::sass
