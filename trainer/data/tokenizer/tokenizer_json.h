// tokenizer.json of Hugging Face tokenizers, with a BPE model: byte-level (GPT-2, Llama 3, Qwen) or over letters with
// bytes to fall back to (Llama 2, Mistral).
//
// Text goes through these, each as the file has it: added tokens are cut out; what is left is normalised, cut into
// words, and each word encoded (bpe.h); then the template of special tokens is put around the ids. Whatever part of
// the file is not built here is refused by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

// `text` is the file's, `where` names it in errors. With `template_tokens` encode() puts the tokens of the post
// processor (such as a begin-of-text) around the text. decode() leaves special tokens out. `end_of_text` is a token;
// "" = a guess: the first there is among the added tokens of </s>, <|endoftext|>, <|end_of_text|> and <eos>. Throws Error.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& where,
                                                bool template_tokens, const std::string& end_of_text = {});

// Reads a file. Throws Error.
std::unique_ptr<Tokenizer> tokenizer_json(const std::string& path, bool template_tokens,
                                          const std::string& end_of_text = {});

}  // namespace meshloom::trainer
