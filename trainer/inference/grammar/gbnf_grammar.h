// Grammars in GBNF, llama.cpp's form of BNF: rules "name ::= ...", of which `root` is the whole text; "literals", [classes], `.`,
// (groups), alternatives, the repetitions * + ? {2,5}, and # comments.
#pragma once

#include <string_view>

#include "trainer/inference/grammar/grammar.h"

namespace meshloom::trainer {

// Throws Error with the line, also for rules that are missing or begin with themselves.
SharedGrammar grammar_of_gbnf(std::string_view text);

}  // namespace meshloom::trainer
