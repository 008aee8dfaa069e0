#include "backends/opencl/inspect/xe_listing.h"

#include <algorithm>
#include <cctype>

#include "backends/simt/inspect/loops.h"
#include "backends/simt/inspect/xe_model.h"
#include "hal/error.h"

namespace meshloom::backends::opencl::xe {
namespace {

using simt::isa::Block;
using simt::isa::Induction;
using simt::isa::Instruction;
using simt::isa::leading_number;
using simt::isa::starts_with_any;
using simt::isa::stripped;
using simt::isa::Unit;

std::string_view word(std::string_view& rest) {
  rest = stripped(rest);
  std::size_t end = 0;
  // Blanks between '<' and '>' or within brackets do not end an operand.
  for (int depth = 0; end < rest.size(); ++end) {
    const char c = rest[end];
    if (c == '<' || c == '[' || c == '(') ++depth;
    if (c == '>' || c == ']' || c == ')') --depth;
    if (depth <= 0 && (c == ' ' || c == '\t')) break;
  }
  const std::string_view found = rest.substr(0, end);
  rest = rest.substr(end);
  return found;
}

// What a message such as "ugm.d32x4.a64" moves: bytes per invocation, or, with a 't' as in "ugm.d32x16t.a32", bytes for the
// whole subgroup, as of a scalar. 0 = not told.
struct Moved {
  int bytes = 0;
  bool of_subgroup = false;
};
Moved moved_by(std::string_view message) {
  const std::size_t at = message.find(".d");
  if (at == std::string_view::npos) return {};
  std::string_view type = message.substr(at + 2);
  type = type.substr(0, type.find('.'));
  const std::int64_t bits = leading_number(type);
  if (bits % 8 != 0 || bits > 64) return {};
  std::int64_t count = 1;
  if (const std::size_t times = type.find('x'); times != std::string_view::npos)
    count = std::max<std::int64_t>(1, leading_number(type.substr(times + 1)));
  return {static_cast<int>(bits / 8 * count), type.ends_with('t')};
}

// Sets the unit and what is loaded. `comment` describes messages that are not spelled out.
void read_message(Instruction& one, std::string_view comment, std::string_view operands) {
  std::string_view message = one.name;
  if (message.starts_with("send"))
    for (std::string_view what : {"load", "store"})
      if (const std::size_t at = comment.find(what); at != std::string_view::npos)
        message = comment.substr(at);
  if (one.name.starts_with("send") && one.name.find(".gtwy") != std::string::npos) {
    one.unit = Unit::barrier;
    return;
  }
  if (comment.find("scratch block") != std::string_view::npos) {  // as compilers before 2023 have them
    one.unit = Unit::scratch;
    return;
  }
  const bool load = message.starts_with("load"), store = starts_with_any(message, {"store", "atomic"});
  if (!load && !store) {
    one.unit = Unit::wait;  // a fence, the end of the thread, or a message of other kinds
    return;
  }
  const auto has = [&](std::string_view part) { return message.find(part) != std::string_view::npos; };
  const bool scratch = operands.find(" ss[") != std::string_view::npos;  // "bss[" is a buffer
  const Moved moved = moved_by(message);
  one.unit = scratch             ? Unit::scratch
             : moved.of_subgroup ? Unit::scalar
             : has(".slm")       ? Unit::local
                                 : Unit::device;
  if (load) one.work.load_bytes = moved.bytes;
}

// The scoreboards of "{Compacted,A@1,$3.dst}" and of "sync.allwr ($0,$2)".
void read_scoreboards(Instruction& one, std::string_view text) {
  const bool all_of_sync = one.name == "sync.allwr";
  for (std::size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    const std::string_view behind = text.substr(at + 1);
    if (behind.empty() || !std::isdigit(static_cast<unsigned char>(behind[0]))) continue;
    const int board = static_cast<int>(leading_number(behind));
    const std::size_t end = behind.find_first_not_of("0123456789");
    const std::string_view suffix = end == std::string_view::npos ? "" : behind.substr(end);
    if (suffix.starts_with(".dst") || all_of_sync)
      one.work.waits_for.push_back(board);
    else if (!suffix.starts_with(".src") && one.unit != Unit::wait && one.unit != Unit::vector) {
      one.work.waits_for.push_back(board);  // it can be set again only when the message that had it has come
      one.work.sets_scoreboard = board;
    }
  }
}

bool multiplies(const Instruction& one) {
  if (one.name == "dp4a") return true;
  if (one.name != "mad" && one.name != "mac") return false;
  // The type of the destination: products of integers are addresses.
  const std::string_view to = one.operands.empty() ? std::string_view{} : one.operands.front();
  const std::size_t type = to.rfind(':');
  return type != std::string_view::npos && starts_with_any(to.substr(type), {":f", ":hf", ":bf", ":df"});
}

bool is_control(std::string_view name) {
  return starts_with_any(
      name, {"jmpi", "goto", "brc", "brd", "while", "if", "else", "break", "cont", "call", "ret", "halt"});
}

// A line of code, without its comment.
Instruction instruction(std::string_view line, std::string_view comment, int native) {
  Instruction one;
  bool predicated = false;
  std::string_view rest = stripped(line);
  if (rest.starts_with('(')) {
    const std::string_view predicate = word(rest);
    predicated = predicate.find('f') != std::string_view::npos;  // "(W)" only turns the mask off
  }
  one.name = word(rest);
  rest = stripped(rest);
  std::int64_t lanes = 1;
  if (rest.starts_with('(') && rest.find("|M") != std::string_view::npos)
    lanes = std::max<std::int64_t>(1, leading_number(word(rest).substr(1)));
  std::string_view boards;
  if (const std::size_t at = rest.find('{'); at != std::string_view::npos) {
    boards = rest.substr(at);
    rest = rest.substr(0, at);
  }
  for (std::string_view left = rest; !stripped(left).empty();) one.operands.emplace_back(word(left));

  if (is_control(one.name)) {
    one.unit = Unit::branch;
    one.no_fallthrough = !predicated && starts_with_any(one.name, {"jmpi", "goto", "brc", "brd", "ret"});
    for (const std::string& operand : one.operands)
      if (starts_with_any(operand, {"_", "L"})) one.targets.push_back(operand);
  } else if (one.name == "sync.bar") {
    one.unit = Unit::barrier;
  } else if (one.name.starts_with("sync")) {
    one.unit = Unit::wait;
  } else if (starts_with_any(one.name, {"send", "load", "store", "atomic"})) {
    read_message(one, comment, rest);
    one.no_fallthrough = boards.find("EOT") != std::string_view::npos;
  } else if (one.name == "nop" || one.name == "join" || one.name == "endif") {
    one.unit = Unit::hint;
  } else {
    one.unit = Unit::vector;
  }
  read_scoreboards(one, one.unit == Unit::wait ? line : boards);
  if (one.unit == Unit::hint) return one;
  const bool wide = one.unit == Unit::vector;
  one.work.issue = wide ? static_cast<double>((lanes + native - 1) / native) : 1;
  one.work.matrix = simt::isa::dpas_cycles(one.name);
  if (multiplies(one)) one.work.multiply = one.work.issue;
  return one;
}

// "r7.3<0;1,0>:d" -> "r7.3"
std::string register_of(std::string_view operand) {
  return std::string(operand.substr(0, operand.find_first_of("<:")));
}

// "16:w" -> 16
std::optional<std::int64_t> immediate(const std::string& operand) {
  const std::size_t colon = operand.find(':');
  return colon == std::string::npos ? std::nullopt : simt::isa::number(operand.substr(0, colon));
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
  // The counter is a multiple of more.
  if (one.name == "or" && operands.size() == 3)
    return {What::ahead, register_of(operands[1]), *value, {}, register_of(operands[0])};
  if (one.name == "cmp") return {What::compare, register_of(operands[operands.size() - 2]), *value};
  return {};
}

}  // namespace

Listing parse_listing(std::string_view text, int native) {
  Listing listing;
  std::size_t count = 0, known = 0;
  while (!text.empty()) {
    const std::string_view line = simt::isa::next_line(text);
    if (line.starts_with("//.")) {
      std::string_view rest = line.substr(3);
      const std::string_view name = word(rest);
      if (name == "spill" && stripped(rest).starts_with("size"))
        listing.spill_size = leading_number(stripped(stripped(rest).substr(4)));
      continue;
    }
    const std::size_t slashes = line.find("//");
    const std::string_view code = line.substr(0, slashes);
    const std::string_view comment = slashes == std::string_view::npos ? "" : line.substr(slashes);
    const std::string_view inside = stripped(code);
    if (inside.empty() || inside.front() == '.') continue;
    if (inside.ends_with(':') && inside.find(' ') == std::string_view::npos) {
      listing.blocks.push_back({std::string(inside.substr(0, inside.size() - 1)), {}, {}});
      continue;
    }
    Instruction one = instruction(code, comment, native);
    if (one.name.empty()) continue;
    ++count;
    if (code.find("|M") != std::string_view::npos || one.unit != Unit::vector) ++known;
    simt::isa::append(listing.blocks, std::move(one));
  }
  if (count == 0) throw hal::Error("listing", "must have instructions", "none");
  if (2 * known < count)
    throw hal::Error(
        "listing", "must be assembly of Xe",
        std::to_string(known) + " of its instructions among " + std::to_string(count) + " lines");
  simt::isa::connect(listing.blocks);
  return listing;
}

std::vector<hal::LoopInspection> inspect_loops(const Listing& listing) {
  return simt::isa::inspect_loops(listing.blocks, simt::isa::find_loops(listing.blocks, induction_of),
                                  {.waits = true, .local = false});
}

}  // namespace meshloom::backends::opencl::xe
