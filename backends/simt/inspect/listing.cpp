#include "backends/simt/inspect/listing.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <utility>

namespace meshloom::backends::simt::isa {
namespace {

bool ends_block(const Block& block) {
  return !block.code.empty() && (block.code.back().unit == Unit::branch || block.code.back().no_fallthrough);
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

// What the counter is before the loop: the constant that it was set to last.
std::optional<std::int64_t> first_value(const std::vector<Block>& blocks, const Loop& loop,
                                        const std::string& counter, const InductionReader& reads) {
  for (std::size_t i = loop.header; i-- > 0;) {
    if (loop.blocks.count(i)) continue;
    const std::vector<Instruction>& code = blocks[i].code;
    for (auto one = code.rbegin(); one != code.rend(); ++one)
      if (const Induction found = reads(*one); found.what == Induction::What::set && found.counter == counter)
        return found.value;
  }
  return std::nullopt;
}

// `own`: the loop's blocks that are of no loop inside, whose counters are theirs.
std::optional<std::int64_t> step_of(const std::vector<Block>& blocks, const std::set<std::size_t>& own,
                                    const std::string& counter, const InductionReader& reads) {
  for (std::size_t i : own)
    for (const Instruction& one : blocks[i].code)
      if (const Induction found = reads(one);
          found.what == Induction::What::step && found.counter == counter && found.value != 0)
        return found.value;
  return std::nullopt;
}

// The counter that this register is ahead of.
std::optional<Induction> behind(const std::vector<Block>& blocks, const std::set<std::size_t>& own,
                                const std::string& other, const InductionReader& reads) {
  for (std::size_t i : own)
    for (const Instruction& one : blocks[i].code)
      if (Induction found = reads(one); found.what == Induction::What::ahead && found.other == other)
        return found;
  return std::nullopt;
}

std::optional<std::int64_t> trip_count_of(const std::vector<Block>& blocks, const Loop& loop,
                                          const std::set<std::size_t>& own, const InductionReader& reads) {
  for (std::size_t i : own)
    for (const Instruction& one : blocks[i].code) {
      Induction limit = reads(one);
      if (limit.what != Induction::What::compare) continue;
      auto step = step_of(blocks, own, limit.counter, reads);
      std::int64_t before = 0;
      if (!step)
        if (const auto counter = behind(blocks, own, limit.counter, reads)) {
          limit.counter = counter->counter;
          limit.value -= counter->value;
          step = step_of(blocks, own, limit.counter, reads);
          before = 1;
        }
      if (!step) continue;
      const auto set = first_value(blocks, loop, limit.counter, reads);
      const auto begin = set ? set : limit.begin;
      if (begin) return std::max<std::int64_t>(1, std::abs((limit.value - *begin) / *step) + before);
    }
  return std::nullopt;
}

}  // namespace

void append(std::vector<Block>& blocks, Instruction instruction) {
  if (blocks.empty() || ends_block(blocks.back())) blocks.push_back({});
  blocks.back().code.push_back(std::move(instruction));
}

void connect(std::vector<Block>& blocks) {
  std::map<std::string, std::size_t> labels;
  for (std::size_t i = 0; i < blocks.size(); ++i) labels.emplace(blocks[i].label, i);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks[i];
    const Instruction* last = block.code.empty() ? nullptr : &block.code.back();
    if (!(last && last->no_fallthrough) && i + 1 < blocks.size()) block.next.push_back(i + 1);
    if (!last) continue;
    for (const std::string& target : last->targets)
      if (const auto found = labels.find(target); found != labels.end()) block.next.push_back(found->second);
  }
}

std::vector<Loop> find_loops(const std::vector<Block>& blocks, const InductionReader& reads) {
  if (blocks.empty()) return {};
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
    std::set<std::size_t> own = loop.blocks;
    for (const Loop& other : loops) {
      if (&other == &loop) continue;
      if (other.blocks.count(loop.header)) ++loop.depth;
      if (!loop.blocks.count(other.header)) continue;
      loop.innermost = false;
      for (std::size_t i : other.blocks) own.erase(i);
    }
    loop.trip_count = trip_count_of(blocks, loop, own, reads);
  }
  return loops;
}

std::string_view stripped(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view one) { return name.starts_with(one); });
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return line;
}

std::vector<std::string> operands_of(std::string_view text) {
  std::vector<std::string> operands;
  while (true) {
    const std::size_t comma = text.find(',');
    operands.emplace_back(stripped(text.substr(0, comma)));
    if (comma == std::string_view::npos) return operands;
    text = text.substr(comma + 1);
  }
}

std::optional<std::int64_t> number(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 0);
  if (*end != '\0') return std::nullopt;
  return value;
}

std::int64_t leading_number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::clamp<std::int64_t>(value, 0, 1 << 20);
}

}  // namespace meshloom::backends::simt::isa
