// A tiny model directory whose tokenizer has few tokens, for tests of where texts end and of chats.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {

// Ids of the tokens that are not letters.
enum ChatToken { kBegin, kEnd, kTurn, kTurnEnd, kGuessed };

// The directory `name` of the scratch: the imported tests' llama with a tokenizer of <s>, </s>, <|im_start|>,
// <|im_end|>, <|endoftext|> and letters, config.json without any eos_token_id but `config`'s, and other files
// that tests add by Scratch::file.
std::string chat_model(const Scratch& scratch, const std::string& name,
                       const nlohmann::json& config = nlohmann::json::object());

}  // namespace meshloom::tests
