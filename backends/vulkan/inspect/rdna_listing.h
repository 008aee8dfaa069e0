// Assembly of AMD's RDNA GPUs as Mesa prints it: instructions, basic blocks, loops.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::backends::vulkan::rdna {

enum class Unit : std::uint8_t {
  vector,   // the SIMD's arithmetic, with products of matrices
  local,    // local memory (LDS)
  device,   // device memory
  scratch,  // private memory
  scalar,   // arithmetic and loads of the whole wave
  branch,
  wait,
  barrier,
  hint,  // takes no cycle of its own
};

struct Instruction {
  std::string name;                   // "v_fmac_f32_e32"
  std::string pair;                   // of a dual-issue pair the second instruction's name, else ""
  std::vector<std::string> operands;  // of the first
  Unit unit = Unit::hint;
};

struct Block {
  std::string label;
  std::vector<Instruction> code;
  std::vector<std::size_t>
      next;  // of blocks; where there are two, the one that follows in the listing comes first
};

// Lines are "LABEL:" or an indented "NAME OPERAND, ... ; COMMENT"; a dual-issue pair has "::" between its two. Branches
// without a known target end their block. Throws Error on a listing without instructions, and on one of other instructions.
std::vector<Block> parse_listing(std::string_view text);

// A natural loop: all blocks from which its header is reached without leaving it.
struct Loop {
  std::size_t header = 0;
  std::set<std::size_t> blocks;
  int depth = 0;  // the number of loops around it
  bool innermost = true;
  // How often it turns, where constants in the code say so: a scalar that counts to one, or a lane's counter that begins
  // below its step.
  std::optional<std::int64_t> turns;
};
// In the order of their headers.
std::vector<Loop> find_loops(const std::vector<Block>& blocks);

}  // namespace meshloom::backends::vulkan::rdna
