#include "trainer/chat/jinja/builtins.h"

#include <map>

#include "trainer/chat/jinja/operators.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

void no_arguments(Run& run, Arguments& arguments) { BoundArguments(run, "this test", arguments, {}); }

template <bool (*holds)(const Value&)>
bool of_value(Run& run, const Value& input, Arguments& arguments) {
  no_arguments(run, arguments);
  return holds(input);
}

template <Comparison comparison>
bool compared(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "this test", arguments, {"other"}, 1);
  return compare(run, comparison, input, given[0]);
}

bool remainder_is(Run& run, const Value& input, std::int64_t divisor, std::int64_t remainder) {
  return binary(run, Binary::modulo, input, Value(divisor)).equals(run, Value(remainder));
}
bool odd(Run& run, const Value& input, Arguments& arguments) {
  no_arguments(run, arguments);
  return remainder_is(run, input, 2, 1);
}
bool even(Run& run, const Value& input, Arguments& arguments) {
  no_arguments(run, arguments);
  return remainder_is(run, input, 2, 0);
}
bool divisible_by(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "the test divisibleby", arguments, {"num"}, 1);
  return binary(run, Binary::modulo, input, given[0]).equals(run, Value(std::int64_t{0}));
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.boolean(); }
bool is_true(const Value& value) { return value.boolean() && *value.boolean(); }
bool is_false(const Value& value) { return value.boolean() && !*value.boolean(); }
bool is_integer(const Value& value) { return value.integer(); }
bool is_real(const Value& value) { return value.real(); }
bool is_number(const Value& value) { return value.number().has_value(); }
bool is_string(const Value& value) { return value.text(); }
bool is_mapping(const Value& value) { return value.dict(); }
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.text() || value.sequence() || value.dict() || value.range();
}
bool is_callable(const Value& value) {
  return value.is_undefined() ||
         (value.object() && (value.object()->callable() || value.type() == "LoopContext"));
}
bool is_escaped(const Value& value) { return value.text() && value.text()->markup; }

bool lower_case(Run& run, const Value& input, Arguments& arguments) {
  no_arguments(run, arguments);
  return all_lower(str(run, input));
}
bool upper_case(Run& run, const Value& input, Arguments& arguments) {
  no_arguments(run, arguments);
  return all_upper(str(run, input));
}

bool same_as(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "the test sameas", arguments, {"other"}, 1);
  const Value& other = given[0];
  if (input.type() != other.type()) return false;
  if (input.is_none() || input.boolean()) return input.equals(run, other);
  if (input.sequence()) return input.sequence() == other.sequence();
  if (input.dict()) return input.dict() == other.dict();
  if (input.object()) return input.object() == other.object();
  run.fail("whether these are the same object depends on Python's memory", input.type());
}

bool is_filter(Run& run, const Value& input, Arguments& arguments) {
  no_arguments(run, arguments);
  bool known = false;
  if (input.text()) filter_named(input.text()->bytes, known);
  return known;
}
bool is_test(Run& run, const Value& input, Arguments& arguments) {
  no_arguments(run, arguments);
  return input.text() && test_named(input.text()->bytes);
}

}  // namespace

Test test_named(const std::string& name) {
  static const std::map<std::string, Test, std::less<>> kTests{
      {"odd", odd},
      {"even", even},
      {"divisibleby", divisible_by},
      {"defined", of_value<is_defined>},
      {"undefined", of_value<is_undefined>},
      {"filter", is_filter},
      {"test", is_test},
      {"none", of_value<is_none>},
      {"boolean", of_value<is_boolean>},
      {"false", of_value<is_false>},
      {"true", of_value<is_true>},
      {"integer", of_value<is_integer>},
      {"float", of_value<is_real>},
      {"lower", lower_case},
      {"upper", upper_case},
      {"string", of_value<is_string>},
      {"mapping", of_value<is_mapping>},
      {"number", of_value<is_number>},
      {"sequence", of_value<is_sequence>},
      {"iterable", of_value<iterable>},
      {"callable", of_value<is_callable>},
      {"sameas", same_as},
      {"escaped", of_value<is_escaped>},
      {"in", compared<Comparison::in>},
      {"==", compared<Comparison::equal>},
      {"eq", compared<Comparison::equal>},
      {"equalto", compared<Comparison::equal>},
      {"!=", compared<Comparison::unequal>},
      {"ne", compared<Comparison::unequal>},
      {">", compared<Comparison::greater>},
      {"gt", compared<Comparison::greater>},
      {"greaterthan", compared<Comparison::greater>},
      {">=", compared<Comparison::greater_equal>},
      {"ge", compared<Comparison::greater_equal>},
      {"<", compared<Comparison::less>},
      {"lt", compared<Comparison::less>},
      {"lessthan", compared<Comparison::less>},
      {"<=", compared<Comparison::less_equal>},
      {"le", compared<Comparison::less_equal>},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace meshloom::trainer::jinja
