// Converts between the tokenizer in a GGUF file's metadata and the files of a Hugging Face directory.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/input_config.h"
#include "trainer/interop/families/family.h"
#include "trainer/io/gguf.h"

namespace meshloom::trainer {

// Writes tokenizer.json (byte-level BPE) or tokenizer.model (SentencePiece) into `directory`, with tokenizer_config.json and
// the chat template, and sets eos_token_id in `config`, the contents of config.json. Returns false, with a note, when the file
// has no tokenizer. Throws Error naming the key: a model or a pre-tokenizer that is not known, tokens that are not UTF-8 or
// occur twice, a list of another length.
bool write_tokenizer_of_gguf(const GgufFile& file, const std::string& directory, nlohmann::json& config,
                             const Note& note);

// The metadata of the tokenizer whose files write_tokenizer_files wrote into `directory`, for a model of `vocabulary` tokens.
// Bytes as tokens become a byte-level BPE without merges. Throws Error for tokenizers that llama.cpp does not know by a name
// that is known here; notes when the model has too few tokens to have one.
std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(TokenizerConfig& tokenizer,
                                                              const std::string& directory,
                                                              const nlohmann::ordered_json& config,
                                                              std::int64_t vocabulary, const Note& note);

}  // namespace meshloom::trainer
