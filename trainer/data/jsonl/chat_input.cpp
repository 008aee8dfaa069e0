#include "trainer/data/jsonl/chat_input.h"

namespace meshloom::trainer {

void ChatInputConfig::add_chat_fields(layers::FieldVisitor& v) {
  v("chat_template", chat_template,
    {"How messages are written; none: by the tokenizer's chat template, or as \"roles\" when it has none."});
  v("chat_time", chat_time, {"The time for templates that ask for it, in seconds since 1970; none: now."});
}

std::vector<std::string> ChatInputConfig::record(const TargetFormat& format) {
  if (!format.chat_template.empty()) chat_template = format.chat_template;
  if (format.chat_time) chat_time = format.chat_time;
  return InputConfig::record(format);
}

void ChatInputConfig::resume_from(const InputConfig& before) {
  const auto* same = dynamic_cast<const ChatInputConfig*>(&before);
  if (same && !chat_time) chat_time = same->chat_time;
}

}  // namespace meshloom::trainer
