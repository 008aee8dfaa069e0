#include "trainer/chat/conversation.h"

#include <array>

#include "trainer/chat/jinja/builtins.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The names of a turn's reasoning; the first one is the standard.
constexpr std::array<const char*, 3> kReasoning{"reasoning_content", "thinking", "reasoning"};

// As in transformers' apply_chat_template, members that are null are removed, and the reasoning may have two
// names.
OrderedJson prepared(const OrderedJson& message) {
  OrderedJson made = OrderedJson::object();
  const OrderedJson* reasoning = nullptr;
  for (const char* name : kReasoning)
    if (const auto found = message.find(name); !reasoning && found != message.end() && !found->is_null())
      reasoning = &*found;
  if (reasoning) made["thinking"] = *reasoning;
  for (const auto& [name, value] : message.items())
    if (!value.is_null()) made[name] = value;
  if (reasoning) made["reasoning_content"] = *reasoning;
  return made;
}

Value text_of(Run& run, const std::string& text, const std::string& what) {
  if (!valid_utf8(text)) run.fail(what + " must be UTF-8 text");
  return make_text(run, text);
}

Value value_at(Run& run, const OrderedJson& json, const std::string& what, int depth) {
  if (depth > kMaxDepth)
    run.fail(what + " must not nest deeper than " + std::to_string(kMaxDepth) + " levels");
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return Value(None{});
    case OrderedJson::value_t::boolean:
      return Value(json.get<bool>());
    case OrderedJson::value_t::number_float:
      return Value(json.get<double>());
    case OrderedJson::value_t::string:
      return text_of(run, json.get_ref<const std::string&>(), what);
    case OrderedJson::value_t::number_integer:
      return Value(json.get<std::int64_t>());
    case OrderedJson::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX)
        run.fail("an integer in " + what + " must fit into 64 bits", json.dump());
      return Value(json.get<std::int64_t>());
    case OrderedJson::value_t::array: {
      Values items;
      for (const OrderedJson& item : json) items.push_back(value_at(run, item, what, depth + 1));
      return make_list(run, std::move(items));
    }
    case OrderedJson::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [name, value] : json.items())
        items.emplace_back(text_of(run, name, what), value_at(run, value, what, depth + 1));
      return make_dict(run, items);
    }
    default:
      run.fail(what + " must be JSON", json.type_name());
  }
}

}  // namespace

Value value_of(Run& run, const OrderedJson& json, const std::string& what) {
  return value_at(run, json, what, 1);
}

void set_variables(Run& run, const Tree& tree, const OrderedJson& messages, const ChatOptions& options) {
  if (!messages.is_array()) run.fail("messages must be a list", messages.type_name());
  OrderedJson prepared_messages = OrderedJson::array();
  for (const OrderedJson& message : messages) {
    if (!message.is_object()) run.fail("a message must be an object", message.type_name());
    prepared_messages.push_back(prepared(message));
  }
  if (!options.variables.is_object())
    run.fail("a template's variables must be an object", options.variables.type_name());
  for (std::size_t i = 0; i < tree.names.size(); ++i) {
    const std::string& name = tree.names[i];
    const auto set = [&](Value value) { run.scope->set(static_cast<int>(i), std::move(value)); };
    if (name == "messages") {
      set(value_of(run, prepared_messages, "a conversation"));
    } else if (const auto given = options.variables.find(name); given != options.variables.end()) {
      set(value_of(run, *given, "the variable '" + name + "'"));
    } else if (name == "add_generation_prompt") {
      set(Value(options.add_generation_prompt));
    } else if (name == "tools" || name == "documents") {
      set(Value(None{}));
    } else if (name == "bos_token" || name == "eos_token") {
      const std::string& token = name == "bos_token" ? options.bos_token : options.eos_token;
      if (!token.empty()) set(text_of(run, token, name));
    } else if (auto function = function_named(run, name)) {
      set(*std::move(function));
    }
  }
}

}  // namespace meshloom::trainer::jinja
