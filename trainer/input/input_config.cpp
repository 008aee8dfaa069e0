#include "trainer/input/input_config.h"

#include <fmt/format.h>

#include "hal/error.h"
#include "trainer/input/jsonl_files.h"
#include "trainer/input/jsonl_pairs.h"
#include "trainer/input/text_files.h"

namespace meshloom::trainer {

void InputConfig::fields(layers::FieldVisitor& v) {
  v("tokenizer", tokenizer);
  v("files", files);
  v("eval_files", eval_files);
  v("eval_fraction", eval_fraction);
  v("shuffle", shuffle);
}

void InputConfig::check() const {
  if (!tokenizer) throw Error("input.tokenizer", "must be set", "none");
  if (!(eval_fraction >= 0 && eval_fraction < 1))
    throw Error("input.eval_fraction", "must be in [0, 1)", fmt::format("{}", eval_fraction));
}

Prompt InputConfig::begin(const Tokenizer& tokenizer, std::string_view text) const {
  return {tokenizer.encode(text)};
}

void add_input_classes(layers::ClassTable& classes) {
  classes.add<BytesConfig>();
  classes.add<SentencePieceConfig>();
  classes.add<TokenizerJsonConfig>();
  classes.add<TextFilesConfig>();
  classes.add<JsonlFilesConfig>();
  classes.add<JsonlPairsConfig>();
}

}  // namespace meshloom::trainer
