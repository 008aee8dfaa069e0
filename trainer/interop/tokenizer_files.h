// The tokenizer of a Hugging Face directory and what its files say of the end of a text and of chats: read into a recipe,
// and written from one.
//
// Where generation ends is as in transformers' generate: generation_config.json's eos_token_id counts, without that file
// config.json's. What is trained ends with the tokenizer's eos_token.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/data/input_config.h"
#include "trainer/interop/families/note.h"

namespace meshloom::trainer {

struct ImportedTokenizer {
  layers::Child<TokenizerConfig> config;
  std::map<std::string, std::string>
      files;  // bytes of those that `config` names and that do not lie there so
};

// `config` is config.json's. Throws Error naming the file; what files disagree about is told to `note`.
ImportedTokenizer read_tokenizer_files(const std::string& from, const nlohmann::json& config,
                                       std::int64_t vocabulary, const Note& note);

// Writes the tokenizer's files and generation_config.json of `input`'s recipe into `directory`, and puts the ids of special
// tokens into `config`, which is config.json's. `like`: a directory whose files are taken over where the recipe says
// nothing else; "" = none.
void write_tokenizer_files(const InputConfig& input, const std::string& like, const std::string& directory,
                           nlohmann::ordered_json& config, const Note& note);

}  // namespace meshloom::trainer
