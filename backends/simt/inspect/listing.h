// Assembly of a GPU of any family: instructions, basic blocks, loops. A reader of each family makes them of what its compiler
// prints.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::backends::simt::isa {

enum class Unit : std::uint8_t {
  vector,   // arithmetic of the subgroup's invocations, with products of matrices
  local,    // local memory
  device,   // device memory
  scratch,  // private memory
  scalar,   // arithmetic and loads of the whole subgroup
  branch,
  wait,
  barrier,
  hint,  // takes no cycle of its own
};

// What an instruction asks of the machine for one subgroup, by the family's model.
struct Work {
  double issue = 0;                        // cycles in which nothing else of the subgroup's processor issues
  double multiply = 0;                     // of these, multiplying
  double matrix = 0;                       // cycles of a matrix unit beside which others issue
  double local = 0;                        // cycles of the local memory
  int load_bytes = 0;                      // per invocation; 0 = it loads nothing
  std::optional<std::size_t> outstanding;  // it waits until at most so many loads are under way
  int sets_scoreboard = -1;    // the one that tells when the load has come; -1 = none, they come in order
  std::vector<int> waits_for;  // scoreboards
};

struct Instruction {
  std::string name;                   // "v_fmac_f32_e32"
  std::string pair;                   // of a dual-issue pair the second instruction's name, else ""
  std::vector<std::string> operands;  // of the first
  Unit unit = Unit::hint;
  bool no_fallthrough = false;       // what follows in the listing is not run after it
  std::vector<std::string> targets;  // labels that it may branch to
  Work work;
};

struct Block {
  std::string label;
  std::vector<Instruction> code;
  std::vector<std::size_t>
      next;  // of blocks; where there are two, the one that follows in the listing comes first
};

// Appends an instruction to the last block, or to a new one behind a branch.
void append(std::vector<Block>& blocks, Instruction instruction);
// Sets `next` of all blocks. A label that is not in the listing is none.
void connect(std::vector<Block>& blocks);

// A natural loop: all blocks from which its header is reached without leaving it.
struct Loop {
  std::size_t header = 0;
  std::set<std::size_t> blocks;
  int depth = 0;  // the number of loops around it
  bool innermost = true;
  std::optional<std::int64_t> trip_count;  // where constants in the code say so
};

// What an instruction does to an induction variable.
struct Induction {
  // ahead: another register becomes the counter and a bit, and is compared in its place before the step.
  enum class What : std::uint8_t { nothing, set, step, compare, ahead } what = What::nothing;
  std::string counter;
  std::int64_t value = 0;  // set to, added, compared with
  std::optional<std::int64_t> begin =
      {};                  // of a compare: where the counter begins when no constant is set before the loop
  std::string other = {};  // the register that is ahead
};
using InductionReader = std::function<Induction(const Instruction&)>;
// In the order of their headers.
std::vector<Loop> find_loops(const std::vector<Block>& blocks, const InductionReader& reads);

// For readers of lines.
std::string_view stripped(std::string_view text);  // of blanks at both ends
bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings);
std::string_view next_line(std::string_view& text);           // takes it off
std::vector<std::string> operands_of(std::string_view text);  // what stands between commas
std::optional<std::int64_t> number(const std::string& text);
std::int64_t leading_number(std::string_view text);  // at the beginning, up to a million; 0 = none

}  // namespace meshloom::backends::simt::isa
