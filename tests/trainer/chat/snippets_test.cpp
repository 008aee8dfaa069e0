// What Jinja2 itself, in transformers' environment, made of some thousand small templates (snippets.jsonl,
// written by check_templates.py --golden).
#include <gtest/gtest.h>

#include <fstream>

#include "hal/error.h"
#include "trainer/chat/chat_template.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::ordered_json;

TEST(ChatSnippets, EqualJinja2) {
  std::ifstream file(MESHLOOM_SOURCE_DIR "/tests/trainer/chat/snippets.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  ChatOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.variables = Json::parse(line).at("variables");
  options.now = 1700000000;
  const Json messages = {{{"role", "user"}, {"content", "Hi"}}};
  int count = 0;
  while (std::getline(file, line)) {
    const Json row = Json::parse(line);
    const auto source = row.at("template").get<std::string>();
    SCOPED_TRACE(source);
    ++count;
    try {
      const std::string text = ChatTemplate(source, "snippet").render(messages, options);
      EXPECT_TRUE(row.contains("text")) << "must be refused; found '" << text << "'";
      EXPECT_EQ(text, row.value("text", ""));
    } catch (const Error& error) {
      EXPECT_FALSE(row.contains("text")) << error.what();
    }
  }
  EXPECT_GT(count, 1000);
}

}  // namespace
}  // namespace meshloom::trainer
