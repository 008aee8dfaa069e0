// An input whose lines may hold messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/input_config.h"

namespace meshloom::trainer {

struct ChatInputConfig : InputConfig {
  // How messages are written: none = by the tokenizer's chat template, or in the built-in format "roles" when
  // it has none (chat_format.h).
  std::optional<std::string> chat_template;
  // The time that a template is given where it asks for it, in seconds since 1970; none = now.
  std::optional<std::int64_t> chat_time;

  std::vector<std::string> record(const TargetFormat& format) override;
  bool needs_record() const override { return tokenizer->chat_template && !chat_time; }
  void resume_from(const InputConfig& before) override;

 protected:
  void add_chat_fields(layers::FieldVisitor& v);
};

}  // namespace meshloom::trainer
