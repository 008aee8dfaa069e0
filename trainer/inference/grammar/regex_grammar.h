// Grammars of regular expressions and of lists of texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/inference/grammar/code_points.h"
#include "trainer/inference/grammar/grammar_builder.h"

namespace meshloom::trainer {

// The texts that a pattern matches as a whole. Of ECMAScript's patterns with Unicode: characters, classes, \d \w \s and their
// negations, `.`, escapes, groups, alternation, quantifiers (a lazy one matches the same texts), and ^ $ at the ends of an
// alternative of the whole pattern. Throws Error for all else, by name.
SharedGrammar grammar_of_regex(std::string_view pattern);

// Any of the texts, none of which may be empty.
SharedGrammar grammar_of_choice(const std::vector<std::string>& texts);

// Appends what a pattern matches: as a whole, or anywhere in a text where ^ and $ do not stand (`search`). Errors are at `where`.
GrammarBuilder::State append_regex(GrammarBuilder& builder, GrammarBuilder::State from,
                                   std::string_view pattern, Spelling spelling, bool search,
                                   const std::string& where);

// A text within a pattern is at most so long.
inline constexpr std::size_t kGrammarBytes = std::size_t{64} << 10;
void check_grammar_text(std::string_view text, const std::string& where);

}  // namespace meshloom::trainer
