#include "trainer/chat/jinja/builtins.h"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>

#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

using Function = Value (*)(Run& run, Arguments& arguments);

struct Global final : Object {
  Function function = nullptr;
  std::string type() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Run& run, Arguments& arguments) override { return function(run, arguments); }
};

Value range(Run& run, Arguments& arguments) {
  const BoundArguments given(run, "range()", arguments, {"start", "stop", "step"}, 1);
  for (std::size_t i = 0; i < 3; ++i)
    if (std::abs(given.integer(i, 0) / 2) > kMaxRangeBound / 2)
      run.fail("the numbers of range() must be smaller", std::to_string(given.integer(i, 0)));
  const std::int64_t start = given.has(1) ? given.integer(0, 0) : 0;
  const std::int64_t stop = given.has(1) ? given.integer(1, 0) : given.integer(0, 0);
  const std::int64_t step = given.integer(2, 1);
  if (step == 0) run.fail("the step of range() must not be zero");
  const std::int64_t way = step > 0 ? stop - start : start - stop, each = std::abs(step);
  const auto length = static_cast<std::size_t>(way > 0 ? (way + each - 1) / each : 0);
  if (length > kMaxRange)
    run.fail("a range must have at most " + std::to_string(kMaxRange) + " items", std::to_string(length));
  run.bytes(64);
  return Value(std::make_shared<const Range>(Range{start, stop, step, length}));
}

// The items that Python's dict() makes of its arguments.
std::vector<std::pair<Value, Value>> dict_items(Run& run, const char* function, Arguments& arguments) {
  if (arguments.positional.size() > 1)
    run.fail(std::string(function) + " takes at most one argument without a name");
  std::vector<std::pair<Value, Value>> items;
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional[0];
    if (const Dict* dict = first.dict()) {
      run.bytes(64 * dict->items.size());
      items = dict->items;
    } else {
      Iteration iteration(run, first);
      while (const auto pair = iteration.next()) {
        const Values two = all_of(run, *pair);
        if (two.size() != 2) run.fail(std::string(function) + " takes pairs of a name and a value");
        run.bytes(64);
        items.emplace_back(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) items.emplace_back(make_text(run, name), value);
  return items;
}

Value dict(Run& run, Arguments& arguments) { return make_dict(run, dict_items(run, "dict()", arguments)); }

Value make_namespace(Run& run, Arguments& arguments) {
  const auto space = run.make_namespace();
  for (const auto& [name, value] : dict_items(run, "namespace()", arguments))
    set_attribute(run, *space, name, value);
  return Value(std::shared_ptr<Object>(space));
}

struct Cycler final : Object {
  Values items;
  std::size_t at = 0;
  int levels = 0;
  std::string type() const override { return "Cycler"; }
  int depth() const override { return levels; }
  std::optional<Value> attribute(Run& run, const std::string& name) override;
};

// cycler.next and cycler.reset.
struct CyclerMethod final : Object {
  std::shared_ptr<Cycler> cycler;
  bool next = false;
  std::string type() const override { return "method"; }
  bool callable() const override { return true; }
  int depth() const override { return cycler->depth() + 1; }
  Value call(Run& run, Arguments& arguments) override {
    BoundArguments(run, "a method of a cycler", arguments, {});
    if (!next) {
      cycler->at = 0;
      return Value(None{});
    }
    const Value value = cycler->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items.size();
    return value;
  }
};

std::optional<Value> Cycler::attribute(Run& run, const std::string& name) {
  if (name == "current") return items[at];
  if (name != "next" && name != "reset") return std::nullopt;
  run.bytes(64);
  auto method = std::make_shared<CyclerMethod>();
  method->cycler = std::static_pointer_cast<Cycler>(shared_from_this());
  method->next = name == "next";
  return Value(std::shared_ptr<Object>(std::move(method)));
}

int deeper(Run& run, int depth) {
  if (depth >= kMaxDepth)
    run.fail("values of a template must not nest deeper than " + std::to_string(kMaxDepth) + " levels");
  return depth + 1;
}

Value make_cycler(Run& run, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    run.fail("cycler() takes the values to go through");
  run.bytes(64 + 32 * arguments.positional.size());
  auto cycler = std::make_shared<Cycler>();
  for (const Value& value : arguments.positional)
    cycler->levels = std::max(cycler->levels, deeper(run, value.depth()));
  cycler->items = arguments.positional;
  return Value(std::shared_ptr<Object>(std::move(cycler)));
}

struct Joiner final : Object {
  Value separator;
  bool used = false;
  int levels = 0;
  std::string type() const override { return "Joiner"; }
  bool callable() const override { return true; }
  int depth() const override { return levels; }
  Value call(Run& run, Arguments& arguments) override {
    BoundArguments(run, "a joiner", arguments, {});
    if (std::exchange(used, true)) return separator;
    return make_text(run, "");
  }
};

Value make_joiner(Run& run, Arguments& arguments) {
  const BoundArguments given(run, "joiner()", arguments, {"sep"});
  run.bytes(64);
  auto joiner = std::make_shared<Joiner>();
  joiner->separator = given.has(0) ? given[0] : make_text(run, ", ");
  joiner->levels = deeper(run, joiner->separator.depth());
  return Value(std::shared_ptr<Object>(std::move(joiner)));
}

Value raise_exception(Run& run, Arguments& arguments) {
  const BoundArguments given(run, "raise_exception()", arguments, {"message"}, 1);
  run.fail("the chat template refuses the conversation", str(run, given[0]));
}

Value strftime_now(Run& run, Arguments& arguments) {
  const BoundArguments given(run, "strftime_now()", arguments, {"format"}, 1);
  const std::string& format = given.text(0);
  if (format.size() > 1000) run.fail("the format of strftime_now() must be shorter");
  std::time_t seconds = run.now ? static_cast<std::time_t>(*run.now)
                                : std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm time{};
  if (!(run.now ? gmtime_r(&seconds, &time) : localtime_r(&seconds, &time)))
    run.fail("strftime_now() has no such time");
  // As for Python's datetime without a zone. One character is appended to the format, because an empty result
  // also means failure.
  std::string plain;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      plain += format[i];
      continue;
    }
    const char kind = format[++i];
    if (kind == 'f')
      plain += "000000";
    else if (kind != 'z' && kind != 'Z')
      plain += {'%', kind};
  }
  plain += '.';
  std::string text(8192, '\0');
  const std::size_t size = std::strftime(text.data(), text.size(), plain.c_str(), &time);
  if (size == 0 || format.find('\0') != std::string::npos)
    run.fail("the text of strftime_now() is too long", format);
  text.resize(size - 1);
  if (!valid_utf8(text)) run.fail("the text of strftime_now() must be UTF-8", format);
  return make_text(run, std::move(text));
}

Value lorem_ipsum(Run& run, Arguments&) {
  run.fail("this function is not supported for chat templates", "lipsum");
}

}  // namespace

std::optional<Value> function_named(Run& run, const std::string& name) {
  static const std::map<std::string, Function, std::less<>> kFunctions{{"cycler", make_cycler},
                                                                       {"dict", dict},
                                                                       {"joiner", make_joiner},
                                                                       {"lipsum", lorem_ipsum},
                                                                       {"namespace", make_namespace},
                                                                       {"raise_exception", raise_exception},
                                                                       {"range", range},
                                                                       {"strftime_now", strftime_now}};
  const auto found = kFunctions.find(name);
  if (found == kFunctions.end()) return std::nullopt;
  run.bytes(64);
  auto global = std::make_shared<Global>();
  global->function = found->second;
  return Value(std::shared_ptr<Object>(std::move(global)));
}

}  // namespace meshloom::trainer::jinja
