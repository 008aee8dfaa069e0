#include "tests/trainer/interop/chat_model.h"

#include <filesystem>
#include <fstream>

#include "tests/trainer/interop/support.h"

namespace meshloom::tests {

std::string chat_model(const Scratch& scratch, const std::string& name, const nlohmann::json& config) {
  const std::string directory = scratch.path(name);
  std::filesystem::copy(model_directory("llama"), directory);
  nlohmann::json json = nlohmann::json::parse(read_text(directory + "/config.json"));
  json.erase("eos_token_id");
  json.erase("bos_token_id");
  json.update(config);
  std::ofstream(directory + "/config.json") << json.dump(1);

  const std::vector<std::string> special{"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"};
  nlohmann::json vocabulary = nlohmann::json::object(), added = nlohmann::json::array();
  for (const std::string& token : special) {
    const auto id = static_cast<int>(added.size());
    vocabulary[token] = id;
    added.push_back({{"id", id},
                     {"content", token},
                     {"special", true},
                     {"normalized", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"single_word", false}});
  }
  for (const std::string letter : {"Ġ", "Ċ", "<", "|", ">", "[", "]", "/", "?", ".", "#", ":"})
    vocabulary[letter] = static_cast<int>(vocabulary.size());
  for (char letter = 'a'; letter <= 'z'; ++letter)
    vocabulary[std::string(1, letter)] = static_cast<int>(vocabulary.size());
  for (const std::string letter : {"H", "I", "N", "S", "T", "Z", "X", "7"})
    vocabulary[letter] = static_cast<int>(vocabulary.size());
  const nlohmann::json tokenizer{
      {"added_tokens", added},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}},
      {"decoder", {{"type", "ByteLevel"}}}};
  std::ofstream(directory + "/tokenizer.json") << tokenizer.dump();
  return directory;
}

}  // namespace meshloom::tests
