#include "trainer/inference/grammar/json_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace meshloom::trainer {
namespace {

const CodePoints& plain_characters() {
  static const CodePoints kPlain{{' ', '!'}, {'#', '['}, {']', CodePoints::kLast}};
  return kPlain;
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    static constexpr std::string_view kShort = "\b\f\n\r\t\"\\", kLetters = "bfnrt\"\\";
    if (const std::size_t at = kShort.find(c); at != std::string_view::npos)
      out += {'\\', kLetters[at]};
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + "\"";
}

JsonGrammar::Rule JsonGrammar::rule(const std::string& name) {
  if (const auto found = rules_.find(name); found != rules_.end()) return found->second;
  const Rule made = builder_.add_rule(name);
  rules_[name] = made;
  define(name, made);
  return made;
}

void JsonGrammar::define(const std::string& name, Rule made) {
  GrammarBuilder& b = builder_;
  const State from = b.begin(made);
  State to = from;
  if (name == "space") {
    b.bytes(from, b.end(made), ' ', ' ');
    b.empty(from, b.end(made));
    to = b.repeat(b.literal(from, "\n"), 0, kIndent, [&](State s) { return b.literal(s, " "); });
  } else if (name == "string") {
    to = b.repeat(b.literal(from, "\""), 0, GrammarBuilder::kNoBound, [&](State s) {
      return b.any_of(
          s, {[&](State each) { return append_character(b, each, plain_characters(), Spelling::utf8); },
              [&](State each) { return escaped(each); }});
    });
    to = b.literal(to, "\"");
  } else if (name == "character") {  // but for the plain ones of ASCII
    const State after = b.add_state();
    b.empty(append_character(b, from, CodePoints{{0x80, CodePoints::kLast}}, Spelling::utf8), after);
    b.empty(escaped(from), after);
    to = after;
  } else if (name == "integer") {
    to = whole(from);
  } else if (name == "number") {
    to = whole(from);
    to = b.optional(to, [&](State s) { return digits(b.literal(s, "."), 1, kFraction); });
    to = b.optional(to, [&](State s) {
      const State sign = b.add_state();
      for (const char e : {'e', 'E'})
        b.bytes(s, sign, static_cast<unsigned char>(e), static_cast<unsigned char>(e));
      const State after = b.add_state();
      for (const char each : {'+', '-'})
        b.bytes(sign, after, static_cast<unsigned char>(each), static_cast<unsigned char>(each));
      b.empty(sign, after);
      return digits(after, 1, kExponent);
    });
  } else if (name == "value") {
    to = b.any_of(
        from,
        {[&](State s) { return b.called(s, rule("object")); },
         [&](State s) { return b.called(s, rule("array")); }, [&](State s) { return string(s); },
         [&](State s) { return number(s); }, [&](State s) { return b.literal(s, "true"); },
         [&](State s) { return b.literal(s, "false"); }, [&](State s) { return b.literal(s, "null"); }});
  } else if (name == "array") {
    to = array(
        from, {}, [&](State s) { return value(s); }, 0, GrammarBuilder::kNoBound);
  } else {  // "object"
    to = object(from, {}, [&](State s) { return value(s); });
  }
  b.empty(to, b.end(made));
}

JsonGrammar::State JsonGrammar::digits(State from, int min, int max) {
  return builder_.repeat(from, min, max, [&](State s) {
    const State next = builder_.add_state();
    builder_.bytes(s, next, '0', '9');
    return next;
  });
}

JsonGrammar::State JsonGrammar::whole(State from) {
  from = builder_.optional(from, [&](State s) { return builder_.literal(s, "-"); });
  const State first = builder_.add_state(), after = builder_.add_state();
  builder_.bytes(from, after, '0', '0');
  builder_.bytes(from, first, '1', '9');
  builder_.empty(digits(first, 0, kDigits - 1), after);
  return after;
}

JsonGrammar::State JsonGrammar::escaped(State from) {
  GrammarBuilder& b = builder_;
  const State back = b.literal(from, "\\"), to = b.add_state();
  for (const char c : std::string_view("\"\\/bfnrt"))
    b.bytes(back, to, static_cast<unsigned char>(c), static_cast<unsigned char>(c));
  const State unicode = b.literal(back, "u");
  using Range = std::pair<char, char>;
  const auto hex = [&](State s, std::initializer_list<Range> ranges) {
    const State next = b.add_state();
    for (const auto& [low, high] : ranges) {
      b.bytes(s, next, static_cast<unsigned char>(low), static_cast<unsigned char>(high));
      if (low >= 'a')
        b.bytes(s, next, static_cast<unsigned char>(low - 32), static_cast<unsigned char>(high - 32));
    }
    return next;
  };
  const std::initializer_list<Range> kAll{{'0', '9'}, {'a', 'f'}};
  const State others = hex(unicode, {{'0', '9'}, {'a', 'c'}, {'e', 'f'}});
  b.empty(hex(hex(hex(others, kAll), kAll), kAll), to);
  const State d = hex(unicode, {{'d', 'd'}});
  b.empty(hex(hex(hex(d, {{'0', '7'}}), kAll), kAll), to);
  const State high = hex(hex(hex(d, {{'8', '9'}, {'a', 'b'}}), kAll), kAll);
  const State low = hex(hex(b.literal(high, "\\u"), {{'d', 'd'}}), {{'c', 'f'}});
  b.empty(hex(hex(low, kAll), kAll), to);
  return to;
}

// One character of a string. In place it takes some 20 states, and masks are found fast; as a rule for most characters it takes one.
JsonGrammar::State JsonGrammar::character(State from, bool in_place) {
  if (in_place) {
    const State to = append_character(builder_, from, plain_characters(), Spelling::utf8);
    builder_.empty(escaped(from), to);
    return to;
  }
  const State to = builder_.add_state();
  builder_.bytes(from, to, ' ', '!');
  builder_.bytes(from, to, '#', '[');
  builder_.bytes(from, to, ']', 0x7f);
  builder_.call(from, to, rule("character"));
  return to;
}

JsonGrammar::State JsonGrammar::string(State from, std::int64_t min, std::int64_t max) {
  if (min == 0 && max == GrammarBuilder::kNoBound) return string(from);
  const bool in_place = in_place_ + std::max(min, max) <= kInPlace;
  if (in_place) in_place_ += std::max(min, max);
  from = builder_.repeat(builder_.literal(from, "\""), min, max,
                         [&](State s) { return character(s, in_place); });
  return builder_.literal(from, "\"");
}

JsonGrammar::State JsonGrammar::array(State from, const std::vector<Part>& prefix, const Part& item,
                                      std::int64_t min, std::int64_t max) {
  GrammarBuilder& b = builder_;
  const State open = space(b.literal(from, "[")), close = b.add_state(), after = b.add_state();
  b.bytes(close, after, ']', ']');
  if (min == 0) b.empty(open, close);
  if (max == 0) return after;
  // Elements that are counted, and those after them where there is no bound.
  const auto prefixes = static_cast<std::int64_t>(prefix.size());
  const bool bounded = max != GrammarBuilder::kNoBound;
  const std::int64_t counted = bounded ? max : std::max<std::int64_t>({prefixes, min, 1});
  State state = open;
  for (std::int64_t i = 0; i < counted; ++i) {
    if (i > 0) state = space(b.literal(state, ","));
    state = i < prefixes ? prefix[static_cast<std::size_t>(i)](state) : item(state);
    if (i + 1 >= min) b.empty(space(state), close);
  }
  if (bounded) return after;
  state =
      b.repeat(state, 1, GrammarBuilder::kNoBound, [&](State s) { return item(space(b.literal(s, ","))); });
  b.empty(space(state), close);
  return after;
}

JsonGrammar::State JsonGrammar::member(State from, const Part& value) {
  return value(
      builder_.optional(builder_.literal(from, ":"), [&](State s) { return builder_.literal(s, " "); }));
}

JsonGrammar::State JsonGrammar::object(State from, const std::vector<Property>& properties,
                                       const std::optional<Part>& further) {
  GrammarBuilder& b = builder_;
  // Before each property: one state where none was written yet, and one where a comma must come first.
  State none = space(b.literal(from, "{")), some = b.add_state();
  const auto comma = [&](State s) { return space(b.literal(s, ",")); };
  for (const Property& property : properties) {
    const State begin = b.add_state(), next_none = b.add_state(), next_some = b.add_state();
    b.empty(none, begin);
    b.empty(comma(some), begin);
    b.empty(member(b.literal(begin, json_text(property.name)), property.value), next_some);
    if (!property.required) {
      b.empty(none, next_none);
      b.empty(some, next_some);
    }
    none = next_none;
    some = next_some;
  }
  if (further) {
    const State begin = b.add_state(), more = b.add_state();
    b.empty(none, begin);
    b.empty(comma(some), begin);
    b.empty(some, more);
    b.empty(member(key(begin, properties), *further), more);
    b.empty(comma(more), begin);
    some = more;
  }
  const State close = b.add_state(), after = b.add_state();
  b.empty(none, close);
  b.empty(space(some), close);
  b.bytes(close, after, '}', '}');
  return after;
}

// A key that is none of the properties' names, written in the one way that has the shortest escapes.
JsonGrammar::State JsonGrammar::key(State from, const std::vector<Property>& others) {
  if (others.empty()) return string(from);
  GrammarBuilder& b = builder_;
  struct Place {
    State state;
    std::map<std::uint32_t, std::size_t> next;
    bool taken = false;  // a name ends here
  };
  std::vector<Place> places{{b.literal(from, "\""), {}, false}};
  for (const Property& each : others) {
    std::size_t place = 0;
    for (std::size_t at = 0; at < each.name.size();) {
      const std::uint32_t c = next_character(each.name, at);
      const auto [found, fresh] = places[place].next.try_emplace(c, places.size());
      const std::size_t next = found->second;
      if (fresh) {
        const State state = append_character(b, places[place].state, CodePoints{{c, c}}, Spelling::json);
        places.push_back({state, {}, false});
      }
      place = next;
    }
    places[place].taken = true;
  }
  const State rest = b.add_state(), to = b.add_state();
  for (const Place& place : places) {
    std::vector<CodePoints::Range> known;
    for (const auto& [c, next] : place.next) known.emplace_back(c, c);
    b.empty(append_character(b, place.state, CodePoints(std::move(known)).complement(), Spelling::json),
            rest);
    if (!place.taken) b.bytes(place.state, to, '"', '"');
  }
  b.empty(append_character(b, rest, CodePoints::all(), Spelling::json), rest);
  b.bytes(rest, to, '"', '"');
  return to;
}

SharedGrammar grammar_of_json_object() {
  GrammarBuilder builder("json");
  JsonGrammar json(builder);
  const auto rule = builder.add_rule("document");
  const auto value = [&](GrammarBuilder::State s) { return json.value(s); };
  builder.empty(json.object(builder.begin(rule), {}, value), builder.end(rule));
  return builder.build(rule);
}

}  // namespace meshloom::trainer
