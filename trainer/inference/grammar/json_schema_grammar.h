// Grammars of JSON schemas (draft 2020-12, and what earlier ones have in common with it).
//
// Every text of the grammar satisfies the schema; a keyword that cannot be held is refused by name, with its place as a JSON
// pointer. Not every valid text is in the grammar: the properties of an object come in the schema's order, and JSON is written
// as json_grammar.h says.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

#include "trainer/inference/grammar/grammar.h"
#include "trainer/inference/grammar/json_grammar.h"

namespace meshloom::trainer {

struct JsonSchemaOptions {
  // What a schema leaves open: by the standard, objects have further properties unless additionalProperties says otherwise, and a
  // schema without a type has them all. Else an object with properties has no others, and properties, items or a pattern
  // without a type make it an object, an array or a string, which models are better kept to.
  bool standard = false;
};

// Throws Error for a schema that is not taken, or over 64 KiB, 32 levels, or the limits of GrammarBuilder.
SharedGrammar grammar_of_json_schema(const nlohmann::ordered_json& schema,
                                     const JsonSchemaOptions& options = {});
// Appends the texts of a schema to a grammar, whose parts of JSON `json` makes. `work` counts what all schemas of the grammar take,
// which is limited as that of one is. The same errors.
GrammarBuilder::State append_json_schema(GrammarBuilder& builder, JsonGrammar& json,
                                         GrammarBuilder::State from, const nlohmann::ordered_json& schema,
                                         std::size_t& work, const JsonSchemaOptions& options = {});

}  // namespace meshloom::trainer
