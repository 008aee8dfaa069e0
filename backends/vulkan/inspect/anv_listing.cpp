#include "backends/vulkan/inspect/anv_listing.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "backends/simt/inspect/loops.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan::anv {
namespace {

using simt::isa::Block;
using simt::isa::Induction;
using simt::isa::Instruction;
using simt::isa::leading_number;
using simt::isa::starts_with_any;
using simt::isa::stripped;
using simt::isa::Unit;

constexpr int kScoreboards = 32;  // on Xe2; 16 before

std::string_view word(std::string_view& rest) {
  rest = stripped(rest);
  const std::string_view found = rest.substr(0, rest.find_first_of(" \t"));
  rest = rest.substr(found.size());
  return found;
}

// What stands between the last '{' of a text and its '}', which is taken off.
std::string_view flags_of(std::string_view& text) {
  const std::size_t at = text.rfind('{');
  if (at == std::string_view::npos) return {};
  const std::string_view flags = text.substr(at + 1, text.find('}', at) - at - 1);
  text = text.substr(0, at);
  return flags;
}

// "slm MsgDesc: ( load, a32, d32, V4, L1UC_L3C dst_len = 4, src0_len = 1, src1_len = 0 flat )": the unit and what is loaded. A
// transposed load is one for the whole subgroup, as of a scalar; the surface "ss" is private memory.
void read_message(Instruction& one, std::string_view message) {
  const auto has = [&](std::string_view part) { return message.find(part) != std::string_view::npos; };
  if (has("gateway MsgDesc: (barrier")) {
    one.unit = Unit::barrier;
    return;
  }
  const bool load = has("( load"), store = has("( store") || has("( atomic");
  if (!load && !store) {
    one.unit = Unit::wait;  // a fence, the end of the thread, or a message of other kinds
    return;
  }
  const bool scratch = has(", ss ");
  one.unit = scratch              ? Unit::scratch
             : has("transpose")   ? Unit::scalar
             : has("slm MsgDesc") ? Unit::local
                                  : Unit::device;
  if (!load) return;
  std::int64_t bits = 0, count = 1;
  if (const std::size_t at = message.find(", d"); at != std::string_view::npos)
    bits = leading_number(message.substr(at + 3));
  if (const std::size_t at = message.find(", V"); at != std::string_view::npos)
    count = std::max<std::int64_t>(1, leading_number(message.substr(at + 3)));
  if (bits % 8 == 0 && bits <= 64) one.work.load_bytes = static_cast<int>(bits / 8 * count);
}

// The scoreboards of "align1 WE_all 1N A@1 $3.dst": those of a destination are waited for, those of a source are not, since the
// message goes on; without either it is the instruction's own, which it can take only when the one that had it has come.
void read_scoreboards(Instruction& one, std::string_view flags) {
  if (one.name == "sync allwr") {
    for (int board = 0; board < kScoreboards; ++board) one.work.waits_for.push_back(board);
    return;
  }
  for (std::size_t at = flags.find('$'); at != std::string_view::npos; at = flags.find('$', at + 1)) {
    const std::string_view behind = flags.substr(at + 1);
    const int board = static_cast<int>(leading_number(behind));
    const std::size_t end = behind.find_first_not_of("0123456789");
    const std::string_view suffix = end == std::string_view::npos ? "" : behind.substr(end);
    if (suffix.starts_with(".src")) continue;
    one.work.waits_for.push_back(board);
    if (!suffix.starts_with(".dst")) one.work.sets_scoreboard = board;
  }
}

// Of a product with a destination of floats: those of integers are addresses.
bool multiplies(const Instruction& one) {
  if (one.name.starts_with("dp4a")) return true;
  if (!starts_with_any(one.name, {"mad", "mac"}) || one.operands.empty()) return false;
  const std::string_view to = one.operands.front();
  const std::size_t type = to.rfind('>');
  if (type == std::string_view::npos) return false;
  const std::string_view name = to.substr(type + 1);
  return name == "F" || name == "HF" || name == "BF" || name == "DF";
}

bool is_control(std::string_view name) {
  return starts_with_any(
      name, {"jmpi", "goto", "brc", "brd", "while", "if", "else", "break", "cont", "call", "ret", "halt"});
}

// A line of code and, of a message, the line behind it.
Instruction instruction(std::string_view line, std::string_view message, int native) {
  Instruction one;
  std::string_view own = line, rest;
  const std::string_view flags = flags_of(message.empty() ? own : message);
  rest = stripped(own);
  bool predicated = false;
  if (rest.starts_with('(')) {
    predicated = true;
    rest = stripped(rest.substr(std::min(rest.find(')'), rest.size() - 1) + 1));
  }
  const std::size_t open = rest.find('(');
  if (open == std::string_view::npos) return one;
  one.name = stripped(rest.substr(0, open));
  const std::int64_t lanes = std::max<std::int64_t>(1, leading_number(rest.substr(open + 1)));
  // Constants of one lane are the addresses of messages, in registers that a counter may have after them.
  if (one.name == "mov" && lanes == 1) one.name = "mov(1)";
  rest = rest.substr(std::min(rest.find(')', open), rest.size() - 1) + 1);
  while (!stripped(rest).empty()) one.operands.emplace_back(word(rest));

  if (is_control(one.name)) {
    one.unit = Unit::branch;
    // The lanes of the other way have been here; those of this one go on behind it.
    one.no_fallthrough =
        one.name == "else" || (!predicated && starts_with_any(one.name, {"jmpi", "goto", "break", "cont"}));
    for (const std::string& operand : one.operands)
      if (operand.starts_with("LABEL") &&
          std::find(one.targets.begin(), one.targets.end(), operand) == one.targets.end())
        one.targets.push_back(operand);
  } else if (one.name == "sync bar") {
    one.unit = Unit::barrier;
  } else if (one.name.starts_with("sync")) {
    one.unit = Unit::wait;
  } else if (one.name.starts_with("send")) {
    read_message(one, message);
    one.no_fallthrough = flags.find("EOT") != std::string_view::npos;
  } else if (starts_with_any(one.name, {"nop", "join", "endif"})) {
    one.unit = Unit::hint;
  } else {
    one.unit = Unit::vector;
  }
  read_scoreboards(one, flags);
  if (one.unit == Unit::hint) return one;
  if (one.name.starts_with("dpas")) {
    one.work.issue = 1;
    one.work.matrix = simt::isa::dpas_cycles(one.name);
    return one;
  }
  one.work.issue = one.unit == Unit::vector ? static_cast<double>((lanes + native - 1) / native) : 1;
  if (multiplies(one)) one.work.multiply = one.work.issue;
  return one;
}

// "g7.3<0,1,0>D" -> "g7.3"
std::string register_of(std::string_view operand) {
  return std::string(operand.substr(0, operand.find('<')));
}

// "16D" -> 16, "0x00000010UD" -> 16: of integers, which are decimal where they have a sign.
std::optional<std::int64_t> immediate(const std::string& operand) {
  const bool hex = operand.starts_with("0x");
  const std::size_t end = operand.find_first_not_of(hex ? "0123456789abcdef" : "-0123456789", hex ? 2 : 0);
  if (end == 0 || end == std::string::npos) return std::nullopt;
  const std::string_view type = std::string_view(operand).substr(end);
  if (hex ? type != "UD" && type != "UW" : type != "D" && type != "W") return std::nullopt;
  return simt::isa::number(operand.substr(0, end));
}

Induction induction_of(const Instruction& one) {
  using What = Induction::What;
  const std::vector<std::string>& operands = one.operands;
  if (operands.size() < 2) return {};
  const auto value = immediate(operands.back());
  if (!value) return {};
  if (one.name == "mov" && operands.size() == 2) return {What::set, register_of(operands[0]), *value};
  if (one.name == "add" && operands.size() == 3 && register_of(operands[0]) == register_of(operands[1]))
    return {What::step, register_of(operands[0]), *value};
  if (one.name.starts_with("cmp") && operands[0].starts_with("null"))
    return {What::compare, register_of(operands[operands.size() - 2]), *value};
  return {};
}

}  // namespace

const simt::isa::Xe* family_of(std::string_view device_name) {
  const std::size_t at = device_name.rfind('(');
  if (at == std::string_view::npos) return nullptr;
  const std::string_view name = device_name.substr(at + 1);
  if (name.starts_with("DG2")) return simt::isa::xe_of("dg2");
  return name.starts_with("BMG") ? simt::isa::xe_of("bmg") : nullptr;
}

std::vector<Block> parse_listing(std::string_view text, int native) {
  std::vector<Block> blocks;
  std::size_t count = 0, known = 0;
  while (!text.empty()) {
    const std::string_view line = simt::isa::next_line(text);
    const std::string_view inside = stripped(line);
    if (inside.empty()) continue;
    if (inside.ends_with(':') && inside.find(' ') == std::string_view::npos) {
      blocks.push_back({std::string(inside.substr(0, inside.size() - 1)), {}, {}});
      continue;
    }
    std::string_view ahead = text, message = simt::isa::next_line(ahead);
    if (message.find("MsgDesc") == std::string_view::npos)
      message = {};
    else
      text = ahead;
    Instruction one = instruction(inside, message, native);
    ++count;
    if (inside.find("{ align") != std::string_view::npos || !message.empty()) ++known;
    if (!one.name.empty()) simt::isa::append(blocks, std::move(one));
  }
  if (count == 0) throw hal::Error("listing", "must have instructions", "none");
  if (2 * known < count)
    throw hal::Error(
        "listing", "must be assembly of Xe",
        std::to_string(known) + " of its instructions among " + std::to_string(count) + " lines");
  simt::isa::connect(blocks);
  return blocks;
}

std::vector<hal::LoopInspection> inspect_loops(std::string_view listing, const simt::isa::Xe& xe) {
  const std::vector<Block> blocks = parse_listing(listing, xe.native);
  return simt::isa::inspect_loops(blocks, simt::isa::find_loops(blocks, induction_of),
                                  {.waits = true, .local = false});
}

}  // namespace meshloom::backends::vulkan::anv
