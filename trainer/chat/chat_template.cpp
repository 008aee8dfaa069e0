#include "trainer/chat/chat_template.h"

#include <algorithm>
#include <ctime>

#include "hal/error.h"
#include "trainer/chat/assistant_ranges.h"
#include "trainer/chat/conversation.h"
#include "trainer/chat/jinja/parser.h"

namespace meshloom::trainer {

using OrderedJson = nlohmann::ordered_json;

struct ChatTemplate::Parsed {
  std::string where;
  jinja::Tree tree;

  // With `marks` the ranges of generation blocks are recorded too.
  RenderedChat run(const OrderedJson& messages, const ChatOptions& options, bool marks) const {
    jinja::Run run(where, options.now);
    run.scope = run.enter(nullptr);
    jinja::set_variables(run, tree, messages, options);
    // Variables that the template sets hide those that it was given.
    run.scope = run.enter(run.scope);
    run.marks_generation = marks;
    jinja::run_body(run, tree.body);
    return {std::move(run.text()), std::move(run.generated)};
  }
};

ChatTemplate::ChatTemplate(std::string source, std::string where) {
  auto parsed = std::make_shared<Parsed>();
  parsed->tree = jinja::parse(source, where);
  parsed->where = std::move(where);
  parsed_ = std::move(parsed);
}

std::string ChatTemplate::render(const OrderedJson& messages, const ChatOptions& options) const {
  if (messages.empty()) throw Error(parsed_->where, "a conversation must have a message");
  return parsed_->run(messages, options, false).text;
}

bool ChatTemplate::uses(std::string_view variable) const {
  const std::vector<std::string>& names = parsed_->tree.names;
  return std::find(names.begin(), names.end(), variable) != names.end();
}

RenderedChat ChatTemplate::render_training(const OrderedJson& messages, const ChatOptions& options) const {
  if (messages.empty()) throw Error(parsed_->where, "a conversation must have a message");
  ChatOptions fixed = options;
  fixed.add_generation_prompt = false;
  if (parsed_->tree.has_generation) {
    RenderedChat chat = parsed_->run(messages, fixed, true);
    chat.assistant_ranges = jinja::joined_ranges(std::move(chat.assistant_ranges));
    return chat;
  }
  // Several renderings are compared, so all of them must have the same time.
  if (!fixed.now) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    if (localtime_r(&now, &local)) fixed.now = timegm(&local);
  }
  const auto render = [&](const OrderedJson& part, bool prompt) {
    ChatOptions asked = fixed;
    asked.add_generation_prompt = prompt;
    return parsed_->run(part, asked, false).text;
  };
  return jinja::assistant_ranges_by_prefixes(messages, render, fixed.added_tokens, parsed_->where);
}

}  // namespace meshloom::trainer
