// Reads the tokenizer of a Hugging Face directory into a recipe, with the end-of-text tokens and the chat
// template, and writes it from one.
//
// Generation ends as in transformers' generate: at the eos_token_id of generation_config.json, or without
// that file at that of config.json. Training targets end with the tokenizer's eos_token.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/data/input_config.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

struct ImportedTokenizer {
  layers::Child<TokenizerConfig> config;
  // The bytes of files that `config` names and that do not exist in this form in the directory.
  std::map<std::string, std::string> files;
};

// `config` is the contents of config.json. Throws Error naming the file; notes where files contradict each
// other.
ImportedTokenizer read_tokenizer_files(const std::string& from, const nlohmann::json& config,
                                       std::int64_t vocabulary, const Note& note);

// Writes the files of the input's tokenizer and generation_config.json into `directory`, and adds the ids of
// special tokens to `config`, the contents of config.json. `like` is a directory whose files are copied
// unless the recipe says otherwise; "" = none.
void write_tokenizer_files(const InputConfig& input, const std::string& like, const std::string& directory,
                           nlohmann::ordered_json& config, const Note& note);

}  // namespace meshloom::trainer
