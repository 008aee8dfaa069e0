// Renders chat templates for tests/trainer/chat/check_templates.py. Each line of the input is a JSON object:
// "template", "messages", "variables", "add_generation_prompt", "bos_token", "eos_token", "now",
// "added_tokens", "training". Each line of the output is one: "text" (and "assistant_ranges", in bytes, where
// training is asked for), or "error".
#include <iostream>
#include <map>
#include <string>

#include "hal/error.h"
#include "trainer/chat/chat_template.h"

int main() {
  using namespace meshloom;
  using Json = nlohmann::ordered_json;
  std::map<std::string, trainer::ChatTemplate> templates;
  std::string line;
  while (std::getline(std::cin, line)) {
    Json answer;
    try {
      const Json asked = Json::parse(line);
      const auto source = asked.at("template").get<std::string>();
      auto known = templates.find(source);
      if (known == templates.end())
        known = templates.emplace(source, trainer::ChatTemplate(source, "template")).first;
      trainer::ChatOptions options;
      options.add_generation_prompt = asked.value("add_generation_prompt", false);
      options.bos_token = asked.value("bos_token", "");
      options.eos_token = asked.value("eos_token", "");
      options.variables = asked.value("variables", Json::object());
      options.added_tokens = asked.value("added_tokens", std::vector<std::string>());
      if (asked.contains("now")) options.now = asked["now"].get<std::int64_t>();
      if (asked.value("training", false)) {
        const auto chat = known->second.render_training(asked.at("messages"), options);
        answer = {{"text", chat.text}, {"assistant_ranges", chat.assistant_ranges}};
      } else {
        answer = {{"text", known->second.render(asked.at("messages"), options)}};
      }
    } catch (const Error& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump(-1, ' ', true) << std::endl;
  }
}
