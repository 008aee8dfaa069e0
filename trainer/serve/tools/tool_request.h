// What a request says of tools: tools, tool_choice, parallel_tool_calls, and calls in earlier messages.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "trainer/inference/grammar/token_masks.h"
#include "trainer/serve/request_fields.h"
#include "trainer/serve/request_grammar.h"
#include "trainer/serve/served_model.h"
#include "trainer/serve/tools/tool_syntax.h"

namespace meshloom::trainer {

// How a served model writes calls. Of the server's thread.
class ServedTools {
 public:
  // `model` and `grammars`, which are those of its texts, must outlive this.
  ServedTools(const ServedModel& model, GrammarCache& grammars);

  const ToolSyntax* syntax() const { return syntax_; }  // null = the model's template is of no known syntax
  // In which the marks of calls are visible, and the grammars for its tokens.
  const Tokenizer& tokenizer() const { return tokenizer_ ? *tokenizer_ : *model_.tokenizer; }
  GrammarCache& grammars() { return own_grammars_ ? *own_grammars_ : grammars_; }

 private:
  const ServedModel& model_;
  GrammarCache& grammars_;
  const ToolSyntax* syntax_ = nullptr;
  std::unique_ptr<Tokenizer> tokenizer_;  // none = the marks are visible anyway
  std::unique_ptr<GrammarCache> own_grammars_;
};

struct AskedTools {
  RequestJson shown;                    // for the template; null = none
  const ToolSyntax* syntax = nullptr;   // of calls in the text; null = all of it is text
  std::vector<std::string> functions;   // that may be called
  bool several = true;                  // calls in one answer
  std::shared_ptr<TokenMasks> grammar;  // where there must be a call
};

// `form`: the text is held to another grammar. Names of unknown fields are added to `ignored`. Throws ApiError.
AskedTools tools_of_request(RequestFields& fields, const ServedModel& model, bool form,
                            std::vector<std::string>& ignored);

// Checks the calls of a message, and makes objects of arguments that are the text of one, as templates expect them. Returns the
// bytes of arguments. Throws ApiError.
std::size_t read_calls_of_message(RequestJson& message, const std::string& field, const ServedModel& model);

}  // namespace meshloom::trainer
