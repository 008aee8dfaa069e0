// The grammar that a request holds its text to: response_format, structured_outputs and vLLM's guided_* fields.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/inference/grammar/grammar.h"
#include "trainer/inference/grammar/token_masks.h"
#include "trainer/serve/request_fields.h"

namespace meshloom::trainer {

// The last grammars and their masks, so that requests of one schema compile it once. Of the server's thread.
class GrammarCache {
 public:
  static constexpr std::size_t kKept = 16;

  // `tokenizer` must outlive this. Its table is made when it is first needed.
  GrammarCache(const Tokenizer& tokenizer, std::int64_t vocabulary)
      : tokenizer_(tokenizer), vocabulary_(vocabulary) {}
  // Throws what `compile` throws. `key` has all that the grammar depends on.
  std::shared_ptr<TokenMasks> find(const std::string& key, const std::function<SharedGrammar()>& compile);

 private:
  const Tokenizer& tokenizer_;
  const std::int64_t vocabulary_;
  std::shared_ptr<const TokenTable> table_;
  std::list<std::pair<std::string, std::shared_ptr<TokenMasks>>> kept_;  // the last used first
};

// None where the request has no such field. Throws ApiError for several fields, and for grammars that are not taken.
std::shared_ptr<TokenMasks> grammar_of_request(RequestFields& fields, GrammarCache& cache);

}  // namespace meshloom::trainer
