// Chat templates, rendered for a conversation with tools, and for training.
#include "trainer/chat/chat_template.h"
#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  using Json = nlohmann::ordered_json;
  static const Json messages = Json::parse(R"([
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": [{"type": "text", "text": "Ünï 🙂"}], "name": null},
    {"role": "assistant", "content": "<think>x</think>y", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5, true, null, "b"]}}}]},
    {"role": "tool", "content": "3", "tool_call_id": "a"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "See you.", "reasoning_content": "z"}])");
  static const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "description": "d",
    "parameters": {"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]}}}])");
  tests::refusal_or_not([&] {
    const trainer::ChatTemplate chat({reinterpret_cast<const char*>(data), size}, "template");
    trainer::ChatOptions options;
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    options.now = 1700000000;
    options.variables["tools"] = tools;
    options.added_tokens = {"<s>", "</s>", "<|im_end|>"};
    const std::string text = chat.render(messages, options);
    if (chat.render(messages, options) != text) __builtin_trap();
    const trainer::RenderedChat training = chat.render_training(messages, options);
    if (training.text != text) __builtin_trap();
    std::size_t end = 0;
    for (const auto& [first, last] : training.assistant_ranges) {
      if (first >= last || last > text.size() || (first <= end && end > 0)) __builtin_trap();
      end = last;
    }
  });
  return 0;
}
