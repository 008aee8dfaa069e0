// What the server needs of a model besides its engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/jsonl/chat_format.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/inference/request.h"

namespace meshloom::trainer {

class GrammarCache;
class ServedTools;

struct ServedModel {
  std::string name;                // which clients give as `model`
  std::time_t created = 0;         // seconds since 1970
  EngineClient* engine = nullptr;  // must outlive the server
  const Tokenizer* tokenizer = nullptr;
  std::function<std::vector<std::int32_t>(std::string_view)> encode;  // a text as the model was trained on it
  // Of a model with an encoder, whose prompts are sources: what each text begins with. None = prompts begin texts.
  std::vector<std::int32_t> decoder_prompt;
  const ChatFormat* chat = nullptr;  // none = the model cannot chat
  std::string no_chat;               // why
  std::vector<std::int32_t> ends;    // tokens that end a text
  // Reads an adapter from a directory of the server's machine and loads it, in place of one of that name if `replace`; `done` hears ""
  // or what is wrong, on any thread. Throws EngineBusy. None = clients may not load adapters.
  std::function<void(const std::string& name, const std::string& directory, bool replace,
                     std::function<void(const std::string& error)> done)>
      load_adapter;
  std::function<void(const std::string& name)> unload_adapter;  // throws UnknownAdapter; none likewise
  GrammarCache* grammars = nullptr;                             // the server's, as are the tools
  ServedTools* tools = nullptr;
};

}  // namespace meshloom::trainer
