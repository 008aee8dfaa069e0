// Answers what grammars of JSON schemas take, for check_text.py. Each line of the input is {"schema", "documents"}, with the texts
// of documents; each line of the output {"error"} or {"taken"}, a list of truths. With "tokenizer", the file of one, it measures
// instead how long the masks of each document's tokens take: {"compile", "table", "cold", "warm", "kept"}, in microseconds.
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hal/error.h"
#include "trainer/data/tokenizer/tokenizer_json.h"
#include "trainer/inference/grammar/json_schema_grammar.h"
#include "trainer/inference/grammar/token_matcher.h"

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using namespace meshloom::trainer;

double microseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

Json measured(const Json& asked) {
  static std::map<std::string, std::pair<std::unique_ptr<Tokenizer>, std::shared_ptr<const TokenTable>>>
      tables;
  auto& [tokenizer, table] = tables[asked["tokenizer"]];
  Json times;
  auto since = Clock::now();
  if (!table) {
    tokenizer = tokenizer_json(asked["tokenizer"], false);
    since = Clock::now();
    table = token_table(*tokenizer, tokenizer->vocabulary());
    times["table"] = microseconds(since);
  }
  since = Clock::now();
  const SharedGrammar grammar = grammar_of_json_schema(asked["schema"]);
  times["compile"] = microseconds(since);
  times["states"] = grammar->size();
  times["tokens"] = table->size();
  const auto masks = std::make_shared<TokenMasks>(grammar, table);
  for (const Json& text : asked["documents"]) {
    const std::vector<std::int32_t> ids = tokenizer->encode_part(text.get<std::string>());
    // The first text makes the masks of states, a second one finds them; a mask that was just made is kept.
    for (const char* name : {"cold", "warm"}) {
      TokenMatcher matcher(masks, {}, false);
      for (const std::int32_t id : ids) {
        since = Clock::now();
        matcher.allowed();
        times[name].push_back(microseconds(since));
        since = Clock::now();
        matcher.allowed();
        if (name == std::string("warm")) times["kept"].push_back(microseconds(since));
        matcher.accept(id);
      }
      times["complete"] = matcher.is_complete();
    }
  }
  return times;
}

Json answered(const Json& asked) {
  try {
    if (asked.contains("tokenizer")) return measured(asked);
    const SharedGrammar grammar = grammar_of_json_schema(asked["schema"], {.standard = true});
    Json taken = Json::array();
    for (const Json& text : asked["documents"]) taken.push_back(grammar->accepts(text.get<std::string>()));
    return {{"taken", taken}};
  } catch (const meshloom::Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answered(Json::parse(line)).dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
}
