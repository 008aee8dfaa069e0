// Whether the SentencePiece library can be trusted with a model file: it takes much of it on faith, and reads
// and writes outside its memory where the file is not as its own trainer writes it.
#pragma once

#include <string>
#include <string_view>

namespace meshloom::trainer {

// Throws Error (where = `where`) unless `model` is a ModelProto (sentencepiece_model.proto) with at least one
// piece, whose
//   - pieces are UTF-8 of 1 to 4096 bytes without NUL, with finite scores; at most 64 user-defined ones begin
//   each other;
//   - tables of characters (precompiled_charsmap, of the normalizer and the denormalizer) are double arrays
//   (darts-clone)
//     whose every step and every result stays inside, without a cycle and with at most 32 results on one way,
//     the number the library has room for, and each result has at most 256 bytes.
void check_sentencepiece_model(std::string_view model, const std::string& where);

}  // namespace meshloom::trainer
