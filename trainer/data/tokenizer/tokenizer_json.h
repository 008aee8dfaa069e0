// tokenizer.json of Hugging Face tokenizers, with a BPE model: byte-level (GPT-2, Llama 3, Qwen) or over
// characters with byte fallback (Llama 2, Mistral).
//
// The steps are those of the file: added tokens are cut out of the text; the rest is normalized,
// pre-tokenized into words, and each word is encoded (bpe.h); then special tokens are added around the ids by
// the post-processor. Every part of the file that is not supported is refused by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

// `text` is the contents of the file, `where` names it in errors. With `template_tokens` encode() adds the
// tokens of the post-processor, such as begin-of-text. decode() skips special tokens. `end_of_text` is a
// token; "" = a guess: the first of </s>, <|endoftext|>, <|end_of_text|> and <eos> that is an added token.
// Throws Error.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& where,
                                                bool template_tokens, const std::string& end_of_text = {});

// Reads a file. Throws Error.
std::unique_ptr<Tokenizer> tokenizer_json(const std::string& path, bool template_tokens,
                                          const std::string& end_of_text = {});

}  // namespace meshloom::trainer
