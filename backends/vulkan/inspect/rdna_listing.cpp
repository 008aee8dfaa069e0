#include "backends/vulkan/inspect/rdna_listing.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "hal/error.h"

namespace meshloom::backends::vulkan::rdna {
namespace {

std::string_view stripped(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view one) { return name.starts_with(one); });
}

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
  if (space == std::string_view::npos) return made;
  for (std::string_view rest = line.substr(space);;) {
    const std::size_t comma = rest.find(',');
    made.operands.emplace_back(stripped(rest.substr(0, comma)));
    if (comma == std::string_view::npos) return made;
    rest = rest.substr(comma + 1);
  }
}

bool ends_block(const Block& block) {
  return !block.code.empty() &&
         (block.code.back().unit == Unit::branch || block.code.back().name == "s_endpgm");
}

void connect(std::vector<Block>& blocks) {
  std::map<std::string, std::size_t> labels;
  for (std::size_t i = 0; i < blocks.size(); ++i) labels.emplace(blocks[i].label, i);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks[i];
    const Instruction* last = block.code.empty() ? nullptr : &block.code.back();
    const bool leaves = last && (last->name == "s_endpgm" || last->name.starts_with("s_branch") ||
                                 last->name.starts_with("s_setpc"));
    if (!leaves && i + 1 < blocks.size()) block.next.push_back(i + 1);
    if (last && last->unit == Unit::branch && !last->operands.empty())
      if (const auto target = labels.find(last->operands.back()); target != labels.end())
        block.next.push_back(target->second);
  }
}

// The blocks that every way from the first block to each block leads through. Those that cannot be reached have none.
std::vector<std::vector<bool>> dominators(const std::vector<Block>& blocks) {
  const std::size_t n = blocks.size();
  std::vector<std::vector<std::size_t>> before(n);
  std::vector<bool> reached(n, false);
  std::vector<std::size_t> todo{0};
  reached[0] = true;
  while (!todo.empty()) {
    const std::size_t at = todo.back();
    todo.pop_back();
    for (std::size_t next : blocks[at].next) {
      before[next].push_back(at);
      if (!reached[next]) todo.push_back(next);
      reached[next] = true;
    }
  }
  std::vector<std::vector<bool>> over(n, std::vector<bool>(n, true));
  over[0].assign(n, false);
  over[0][0] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 1; i < n; ++i) {
      std::vector<bool> common(n, !before[i].empty());
      for (std::size_t from : before[i])
        for (std::size_t d = 0; d < n; ++d) common[d] = common[d] && over[from][d];
      common[i] = reached[i];
      changed = changed || common != over[i];
      over[i] = std::move(common);
    }
  }
  return over;
}

std::optional<std::int64_t> number(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 0);
  if (*end != '\0') return std::nullopt;
  return value;
}

// What a scalar register is before the loop: the constant that was moved there last, else 0.
std::int64_t first_value(const std::vector<Block>& blocks, const Loop& loop, const std::string& scalar) {
  for (std::size_t i = loop.header; i-- > 0;) {
    if (loop.blocks.count(i)) continue;
    const std::vector<Instruction>& code = blocks[i].code;
    for (auto one = code.rbegin(); one != code.rend(); ++one)
      if (one->name.starts_with("s_mov") && one->operands.size() == 2 && one->operands[0] == scalar)
        return number(one->operands[1]).value_or(0);
  }
  return 0;
}

// The constant that is added to a register in the loop.
std::optional<std::int64_t> step_of(const std::vector<Block>& blocks, const Loop& loop,
                                    const std::string& counter) {
  for (std::size_t i : loop.blocks)
    for (const Instruction& one : blocks[i].code) {
      if (!starts_with_any(one.name, {"s_add", "v_add_nc_u32"}) || one.operands.empty() ||
          one.operands[0] != counter)
        continue;
      for (const std::string& operand : one.operands)
        if (const auto step = number(operand); step && *step != 0) return step;
    }
  return std::nullopt;
}

std::optional<std::int64_t> turns_of(const std::vector<Block>& blocks, const Loop& loop) {
  for (std::size_t i : loop.blocks)
    for (const Instruction& one : blocks[i].code) {
      if (one.operands.size() < 2) continue;
      const std::string &left = one.operands[one.operands.size() - 2], &right = one.operands.back();
      if (one.name.starts_with("s_cmp")) {
        const auto limit = number(right);
        const auto step = limit ? step_of(blocks, loop, left) : std::nullopt;
        if (step)
          return std::max<std::int64_t>(1, std::abs((*limit - first_value(blocks, loop, left)) / *step));
      }
      if (one.name.starts_with("v_cmp") && right.starts_with("v")) {
        const auto limit = number(left);
        const auto step = limit ? step_of(blocks, loop, right) : std::nullopt;
        if (step && *step > 0) return std::max<std::int64_t>(1, *limit / *step);
      }
    }
  return std::nullopt;
}

}  // namespace

std::vector<Block> parse_listing(std::string_view text) {
  std::vector<Block> blocks;
  std::size_t count = 0, known = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    line = line.substr(0, line.find(';'));
    const std::string_view inside = stripped(line);
    if (inside.empty()) continue;
    if (inside.ends_with(':') && inside.find(' ') == std::string_view::npos) {
      blocks.push_back({std::string(inside.substr(0, inside.size() - 1)), {}, {}});
      continue;
    }
    if (line.front() != ' ' && line.front() != '\t') continue;  // a heading
    if (inside.find('_') == std::string_view::npos) continue;   // a note, such as "(then repeated 3 times)"
    if (blocks.empty() || ends_block(blocks.back())) blocks.push_back({});
    blocks.back().code.push_back(instruction(inside));
    ++count;
    if (starts_with_any(inside, {"v_", "s_", "ds_", "buffer_", "global_", "scratch_", "flat_"})) ++known;
  }
  if (count == 0) throw hal::Error("listing", "must have instructions", "none");
  // A driver whose disassembler does not know the family prints something else.
  if (2 * known < count)
    throw hal::Error(
        "listing", "must be assembly of RDNA",
        std::to_string(known) + " of its instructions among " + std::to_string(count) + " lines");
  connect(blocks);
  return blocks;
}

std::vector<Loop> find_loops(const std::vector<Block>& blocks) {
  const std::vector<std::vector<bool>> over = dominators(blocks);
  std::vector<std::vector<std::size_t>> before(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (std::size_t next : blocks[i].next) before[next].push_back(i);
  std::map<std::size_t, std::set<std::size_t>> bodies;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (std::size_t header : blocks[i].next) {
      if (!over[i][i] || !over[i][header]) continue;
      std::set<std::size_t>& body = bodies[header];
      body.insert(header);
      std::vector<std::size_t> todo{i};
      while (!todo.empty()) {
        const std::size_t at = todo.back();
        todo.pop_back();
        if (body.insert(at).second) todo.insert(todo.end(), before[at].begin(), before[at].end());
      }
    }
  std::vector<Loop> loops;
  for (auto& [header, body] : bodies) loops.push_back({header, std::move(body), 0, true, {}});
  for (Loop& loop : loops) {
    for (const Loop& other : loops) {
      if (&other == &loop) continue;
      if (other.blocks.count(loop.header)) ++loop.depth;
      if (loop.blocks.count(other.header)) loop.innermost = false;
    }
    loop.turns = turns_of(blocks, loop);
  }
  return loops;
}

}  // namespace meshloom::backends::vulkan::rdna
