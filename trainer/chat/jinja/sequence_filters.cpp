// Filters of sequences and dicts. Filters that are generators in Jinja2 are generators here too: their items
// are computed when they are read, once.
#include <algorithm>
#include <map>
#include <set>

#include "trainer/chat/jinja/builtins.h"
#include "trainer/chat/jinja/operators.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

// A generator over the items.
Value iterator_over(Run& run, Values items) {
  const Value list = make_list(run, std::move(items));
  return make_iterator(
      run,
      [list, at = std::size_t{0}]() mutable -> std::optional<Value> {
        const Values& items = list.sequence()->items;
        return at < items.size() ? std::optional(items[at++]) : std::nullopt;
      },
      list.depth());
}

using Next = std::function<std::optional<Value>()>;

// The value at an attribute path ("a.b.0"), called an attribute getter in Jinja2.
class Getter {
 public:
  // None and undefined mean the item itself.
  Getter(Run& run, const Value& path, std::optional<Value> otherwise = std::nullopt)
      : otherwise_(std::move(otherwise)) {
    if (path.is_undefined() || path.is_none()) return;
    if (!path.text()) {
      parts_.push_back(path);
      return;
    }
    const std::string& text = path.text()->bytes;
    for (std::size_t start = 0; start <= text.size();) {
      const std::size_t end = std::min(text.find('.', start), text.size());
      const std::string part = text.substr(start, end - start);
      const bool number = !part.empty() && part.size() < 18 &&
                          std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
      parts_.push_back(number ? Value(static_cast<std::int64_t>(std::stoll(part))) : make_text(run, part));
      start = end + 1;
    }
  }
  Value operator()(Run& run, Value value) const {
    for (const Value& part : parts_) {
      value = item(run, value, part);
      if (otherwise_ && value.is_undefined()) value = *otherwise_;
    }
    return value;
  }

 private:
  std::vector<Value> parts_;
  std::optional<Value> otherwise_;
};

Value lower_case(Run& run, const Value& value) {
  const Text* text = value.text();
  return text ? make_text(run, lower(text->bytes), text->markup) : value;
}

// A key for sorting or grouping; ignores case unless `exact`.
Value key_of(Run& run, const Getter& getter, const Value& value, bool exact) {
  const Value key = getter(run, value);
  return exact ? key : lower_case(run, key);
}

// A generator over `input` that begins to read it when its first item is read. With `skips_false`, values
// that are false have no items, even if they cannot be iterated.
Value lazily(Run& run, const Value& input, bool skips_false, std::function<Next(Iteration&)> make) {
  struct State {
    Value input;
    std::function<Next(Iteration&)> make;
    std::unique_ptr<Iteration> iteration;
    Next next;
    bool ended = false;
  };
  auto state = std::make_shared<State>(State{input, std::move(make), nullptr, nullptr});
  run.bytes(256);
  return make_iterator(
      run,
      [state, skips_false, &run]() -> std::optional<Value> {
        if (state->ended) return std::nullopt;
        if (!state->next) {
          if (skips_false && !state->input.truth(run)) {
            state->ended = true;
            return std::nullopt;
          }
          state->iteration = std::make_unique<Iteration>(run, state->input);
          state->next = state->make(*state->iteration);
        }
        auto item = state->next();
        state->ended = !item;
        return item;
      },
      input.depth());
}

Value length(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "length", arguments, {});
  const auto items = length_of(run, input);
  if (!items) run.fail("a value of this type has no length", input.type());
  return Value(static_cast<std::int64_t>(*items));
}

Value list(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "list", arguments, {});
  return make_list(run, all_of(run, input));
}

Value first(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "first", arguments, {});
  Iteration iteration(run, input);
  const auto item = iteration.next();
  return item ? *item : Value::undefined("No first item, sequence was empty.");
}

void must_reverse(Run& run, const Value& input) {
  if (!input.text() && !input.sequence() && !input.dict() && !input.view() && !input.range() &&
      !input.is_undefined())
    run.fail("a value of this type has no last item; make it a list first", input.type());
}

Value last(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "last", arguments, {});
  must_reverse(run, input);
  if (const Sequence* sequence = input.sequence(); sequence && !sequence->items.empty())
    return sequence->items.back();
  const Values items = all_of(run, input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "reverse", arguments, {});
  if (const Text* text = input.text()) {
    std::vector<std::size_t> starts;
    for (std::size_t at = 0; at < text->bytes.size(); next_code_point(text->bytes, at)) starts.push_back(at);
    run.bytes(8 * starts.size());
    std::string out;
    std::size_t end = text->bytes.size();
    for (auto start = starts.rbegin(); start != starts.rend(); end = *start++)
      out += text->bytes.substr(*start, end - *start);
    return make_text(run, std::move(out), text->markup);
  }
  Values items = all_of(run, input);
  std::reverse(items.begin(), items.end());
  if (input.iterator()) return make_list(run, std::move(items));
  return iterator_over(run, std::move(items));
}

Value join(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "join", arguments, {"d", "attribute"});
  const Getter getter(run, given[1]);
  const std::string separator = given.has(0) ? str(run, given[0]) : "";
  std::string out;
  bool first = true;
  Iteration iteration(run, input);
  while (auto item = iteration.next()) {
    if (!first) out += separator;
    out += str(run, getter(run, *std::move(item)));
    first = false;
    run.check_text(out.size());
    charge(run, separator.size());
  }
  return make_text(run, std::move(out));
}

Value sum(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "sum", arguments, {"attribute", "start"});
  const Getter getter(run, given[0]);
  Value total = given.has(1) ? given[1] : Value(std::int64_t{0});
  if (total.text()) run.fail("sum does not add text; use join");
  Iteration iteration(run, input);
  while (auto item = iteration.next()) total = binary(run, Binary::add, total, getter(run, *std::move(item)));
  return total;
}

struct Keyed {
  Value value;
  Values keys;
};

// Compares by the first key in which the two differ.
bool before(Run& run, const Keyed& left, const Keyed& right) {
  for (std::size_t i = 0; i < left.keys.size(); ++i)
    if (!left.keys[i].equals(run, right.keys[i])) return less(run, left.keys[i], right.keys[i]);
  run.step();
  return false;
}

Values sorted(Run& run, std::vector<Keyed> items, bool backwards) {
  run.bytes(64 * items.size());
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return backwards ? before(run, b, a) : before(run, a, b);
  });
  Values values;
  for (Keyed& item : items) values.push_back(std::move(item.value));
  return values;
}

Value sort(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool exact = given.boolean(1, false);
  std::vector<Getter> getters;
  if (const Text* paths = given[2].text()) {
    for (std::size_t start = 0; start <= paths->bytes.size();) {
      const std::size_t end = std::min(paths->bytes.find(',', start), paths->bytes.size());
      getters.emplace_back(run, make_text(run, paths->bytes.substr(start, end - start)));
      start = end + 1;
    }
  } else {
    getters.emplace_back(run, given[2]);
  }
  std::vector<Keyed> items;
  for (const Value& value : all_of(run, input)) {
    Keyed item{value, {}};
    for (const Getter& getter : getters) item.keys.push_back(key_of(run, getter, value, exact));
    items.push_back(std::move(item));
  }
  return make_list(run, sorted(run, std::move(items), given.boolean(0, false)));
}

Value dict_sort(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = given.has(1) ? given.text(1) : "key";
  if (by != "key" && by != "value") run.fail("dictsort sorts by 'key' or 'value'", by);
  if (!input.dict()) run.fail("dictsort takes a dict", input.type());
  std::vector<Keyed> items;
  for (const auto& [name, value] : input.dict()->items) {
    const Value& key = by == "key" ? name : value;
    items.push_back({make_tuple(run, {name, value}), {given.boolean(0, false) ? key : lower_case(run, key)}});
  }
  return make_list(run, sorted(run, std::move(items), given.boolean(2, false)));
}

template <bool greatest>
Value extreme(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, greatest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const bool exact = given.boolean(0, false);
  const Getter getter(run, given[1]);
  std::optional<Value> best, best_key;
  Iteration iteration(run, input);
  while (auto value = iteration.next()) {
    Value key = key_of(run, getter, *value, exact);
    if (best && !(greatest ? less(run, *best_key, key) : less(run, key, *best_key))) continue;
    best = std::move(value);
    best_key = std::move(key);
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

Value unique(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "unique", arguments, {"case_sensitive", "attribute"});
  const bool exact = given.boolean(0, false);
  auto getter = std::make_shared<const Getter>(run, given[1]);
  return lazily(run, input, false, [&run, getter, exact](Iteration& iteration) -> Next {
    return [&run, &iteration, getter, exact,
            seen = std::make_shared<std::set<std::string>>()]() -> std::optional<Value> {
      while (auto item = iteration.next()) {
        auto key = key_of(run, *getter, *item, exact).key(run);
        if (!key) run.fail("unique cannot tell lists and dicts apart", item->type());
        run.bytes(key->size() + 64);
        if (seen->insert(*std::move(key)).second) return item;
      }
      return std::nullopt;
    };
  });
}

Value group_by(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool exact = given.boolean(2, false);
  const Getter getter(run, given[0], given.given(1) ? std::optional(given[1]) : std::nullopt);
  std::vector<Keyed> items;
  for (const Value& value : all_of(run, input)) items.push_back({value, {key_of(run, getter, value, exact)}});
  Values groups, members;
  std::optional<Value> key;
  const auto close = [&] {
    if (!key) return;
    const Value shown = exact ? *key : getter(run, members[0]);
    groups.push_back(make_tuple(run, {shown, make_list(run, std::move(members))}, true));
    members.clear();
  };
  for (const Value& value : sorted(run, std::move(items), false)) {
    Value own = key_of(run, getter, value, exact);
    if (!key || !key->equals(run, own)) {
      close();
      key = std::move(own);
    }
    members.push_back(value);
  }
  close();
  return make_list(run, std::move(groups));
}

Value items(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "items", arguments, {});
  if (!input.is_undefined() && !input.dict()) run.fail("items takes a dict", input.type());
  return lazily(run, input, false, [&run, input](Iteration& iteration) -> Next {
    return [&run, &iteration, input]() -> std::optional<Value> {
      const auto name = iteration.next();
      if (!name) return std::nullopt;
      return make_tuple(run, {*name, *input.dict()->find(run, *name)});
    };
  });
}

Value batch(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t count = given.integer(0, 1);
  if (count < 1) run.fail("batch takes a number of items from 1", std::to_string(count));
  const std::optional<Value> fill = given.given(1) ? std::optional(given[1]) : std::nullopt;
  return lazily(run, input, false, [&run, count, fill](Iteration& iteration) -> Next {
    return [&run, &iteration, count, fill]() -> std::optional<Value> {
      Values line;
      while (static_cast<std::int64_t>(line.size()) < count) {
        auto item = iteration.next();
        if (!item) break;
        line.push_back(*std::move(item));
      }
      if (line.empty()) return std::nullopt;
      while (fill && static_cast<std::int64_t>(line.size()) < count) {
        run.bytes(32);
        line.push_back(*fill);
      }
      return make_list(run, std::move(line));
    };
  });
}

Value slices(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t count = given.integer(0, 1);
  if (count < 1 || count > static_cast<std::int64_t>(kMaxRange))
    run.fail("slice takes a number of slices from 1", std::to_string(count));
  const Values all = all_of(run, input);
  const std::size_t parts = static_cast<std::size_t>(count), each = all.size() / parts,
                    more = all.size() % parts;
  Values made;
  std::size_t start = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t size = each + (i < more ? 1 : 0);
    Values part(all.begin() + static_cast<std::ptrdiff_t>(start),
                all.begin() + static_cast<std::ptrdiff_t>(start + size));
    if (given.given(1) && i >= more) part.push_back(given[1]);
    made.push_back(make_list(run, std::move(part)));
    start += size;
  }
  return iterator_over(run, std::move(made));
}

// Removes and returns the first argument, which must be a name.
std::optional<std::string> take_name(Run& run, Arguments& arguments, const char* filter) {
  if (arguments.positional.empty()) return std::nullopt;
  const Value name = arguments.positional[0];
  if (!name.text())
    run.fail(std::string(filter) + " takes the name of a filter or test as text", name.type());
  arguments.positional.erase(arguments.positional.begin());
  return name.text()->bytes;
}

Value map(Run& run, const Value& input, Arguments& arguments) {
  if (arguments.positional.empty() && !arguments.named.empty()) {
    const BoundArguments given(run, "map", arguments, {"attribute", "default"}, 1);
    auto getter = std::make_shared<const Getter>(run, given[0],
                                                 given.given(1) ? std::optional(given[1]) : std::nullopt);
    return lazily(run, input, true, [&run, getter](Iteration& iteration) -> Next {
      return [&run, &iteration, getter]() -> std::optional<Value> {
        auto item = iteration.next();
        if (!item) return std::nullopt;
        return (*getter)(run, *std::move(item));
      };
    });
  }
  const auto name = take_name(run, arguments, "map");
  if (!name) run.fail("map takes an attribute or the name of a filter");
  bool known = false;
  const Filter filter = filter_named(*name, known);
  if (!filter)
    run.fail(
        known ? "this filter is not supported for chat templates" : "a filter must be one that Jinja knows",
        *name);
  return lazily(run, input, true, [&run, filter, arguments](Iteration& iteration) -> Next {
    return [&run, &iteration, filter, arguments]() -> std::optional<Value> {
      const auto item = iteration.next();
      if (!item) return std::nullopt;
      charge(run, *item);
      Arguments copy = arguments;
      return filter(run, *item, copy);
    };
  });
}

template <bool keeps, bool by_attribute>
Value choose(Run& run, const Value& input, Arguments& arguments) {
  std::shared_ptr<const Getter> getter;
  if (by_attribute) {
    if (arguments.positional.empty()) run.fail("selectattr and rejectattr take the name of an attribute");
    getter = std::make_shared<const Getter>(run, arguments.positional[0]);
    arguments.positional.erase(arguments.positional.begin());
  }
  Test test = nullptr;
  if (const auto name = take_name(run, arguments, "select")) {
    test = test_named(*name);
    if (!test) run.fail("a test must be one that Jinja knows", *name);
  }
  return lazily(run, input, true, [&run, getter, test, arguments](Iteration& iteration) -> Next {
    return [&run, &iteration, getter, test, arguments]() -> std::optional<Value> {
      while (auto item = iteration.next()) {
        const Value asked = getter ? (*getter)(run, *item) : *item;
        charge(run, asked);
        Arguments copy = arguments;
        if ((test ? test(run, asked, copy) : asked.truth(run)) == keeps) return item;
      }
      return std::nullopt;
    };
  });
}

}  // namespace

Filter sequence_filter(const std::string& name) {
  static const std::map<std::string, Filter, std::less<>> kFilters{
      {"batch", batch},
      {"count", length},
      {"dictsort", dict_sort},
      {"first", first},
      {"groupby", group_by},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", list},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", choose<false, false>},
      {"rejectattr", choose<false, true>},
      {"reverse", reverse},
      {"select", choose<true, false>},
      {"selectattr", choose<true, true>},
      {"slice", slices},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace meshloom::trainer::jinja
