#include "backends/vulkan/inspect/rdna_listing.h"

#include <string>
#include <utility>

#include "hal/error.h"

namespace meshloom::backends::vulkan::rdna {
namespace {

using simt::isa::number;
using simt::isa::starts_with_any;
using simt::isa::stripped;

Unit unit_of(std::string_view name) {
  if (name.starts_with("v_")) return Unit::vector;
  if (name.starts_with("ds_")) return Unit::local;
  if (name.starts_with("scratch_")) return Unit::scratch;
  if (starts_with_any(name, {"buffer_", "global_", "flat_", "image_", "tbuffer_"}))
    return name.find("_inv") == std::string_view::npos ? Unit::device : Unit::hint;
  if (starts_with_any(name, {"s_waitcnt", "s_wait_"})) return Unit::wait;
  if (name.starts_with("s_barrier")) return Unit::barrier;
  if (starts_with_any(name, {"s_cbranch", "s_branch", "s_setpc", "s_swappc"})) return Unit::branch;
  if (starts_with_any(name, {"s_delay_alu", "s_nop", "s_clause", "s_inst_prefetch", "s_set_inst", "s_sendmsg",
                             "s_endpgm", "s_code_end"}))
    return Unit::hint;
  return name.starts_with("s_") ? Unit::scalar : Unit::hint;
}

Instruction instruction(std::string_view line) {
  Instruction made;
  const std::size_t dual = line.find("::");
  if (dual != std::string_view::npos) {
    const std::string_view second = stripped(line.substr(dual + 2));
    made.pair = second.substr(0, second.find_first_of(" \t"));
    line = stripped(line.substr(0, dual));
  }
  const std::size_t space = line.find_first_of(" \t");
  made.name = line.substr(0, space);
  made.unit = unit_of(made.name);
  made.no_fallthrough = starts_with_any(made.name, {"s_endpgm", "s_branch", "s_setpc"});
  if (space == std::string_view::npos) return made;
  made.operands = simt::isa::operands_of(line.substr(space));
  if (made.unit == Unit::branch) made.targets = {made.operands.back()};
  return made;
}

}  // namespace

std::vector<Block> parse_listing(std::string_view text) {
  std::vector<Block> blocks;
  std::size_t count = 0, known = 0;
  while (!text.empty()) {
    std::string_view line = simt::isa::next_line(text);
    line = line.substr(0, line.find(';'));
    const std::string_view inside = stripped(line);
    if (inside.empty()) continue;
    if (inside.ends_with(':') && inside.find(' ') == std::string_view::npos) {
      blocks.push_back({std::string(inside.substr(0, inside.size() - 1)), {}, {}});
      continue;
    }
    if (line.front() != ' ' && line.front() != '\t') continue;  // a heading
    if (inside.find('_') == std::string_view::npos) continue;   // a note, such as "(then repeated 3 times)"
    simt::isa::append(blocks, instruction(inside));
    ++count;
    if (starts_with_any(inside, {"v_", "s_", "ds_", "buffer_", "global_", "scratch_", "flat_"})) ++known;
  }
  if (count == 0) throw hal::Error("listing", "must have instructions", "none");
  // A driver whose disassembler does not know the family prints something else.
  if (2 * known < count)
    throw hal::Error(
        "listing", "must be assembly of RDNA",
        std::to_string(known) + " of its instructions among " + std::to_string(count) + " lines");
  simt::isa::connect(blocks);
  return blocks;
}

simt::isa::Induction induction_of(const Instruction& one) {
  using What = simt::isa::Induction::What;
  if (one.operands.size() < 2) return {};
  const std::string &first = one.operands.front(), &left = one.operands[one.operands.size() - 2],
                    &right = one.operands.back();
  if (one.name.starts_with("s_mov") && one.operands.size() == 2)
    return {What::set, first, number(right).value_or(0)};
  if (starts_with_any(one.name, {"s_add", "v_add_nc_u32"}))
    for (const std::string& operand : one.operands)
      if (const auto step = number(operand); step && *step != 0) return {What::step, first, *step};
  if (one.name.starts_with("s_cmp"))
    if (const auto limit = number(right)) return {What::compare, left, *limit, 0};
  if (one.name.starts_with("v_cmp") && right.starts_with("v"))
    if (const auto limit = number(left)) return {What::compare, right, *limit, 0};
  return {};
}

}  // namespace meshloom::backends::vulkan::rdna
