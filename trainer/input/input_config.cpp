#include "trainer/input/input_config.h"

namespace meshloom::trainer {

void InputConfig::fields(layers::FieldVisitor& v) {
  v("tokenizer", tokenizer);
  v("files", files);
  v("eval_files", eval_files);
  v("eval_fraction", eval_fraction);
  v("shuffle", shuffle);
}

void add_input_classes(layers::ClassTable& classes) {
  classes.add<BytesConfig>();
  classes.add<SentencePieceConfig>();
  classes.add<TokenizerJsonConfig>();
  classes.add<InputConfig>();
}

}  // namespace meshloom::trainer
