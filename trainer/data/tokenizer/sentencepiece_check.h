// Checks a model file before the SentencePiece library reads it. The library does not check much itself, and
// reads and writes out of bounds when a file is not as its own trainer writes it.
#pragma once

#include <string>
#include <string_view>

namespace meshloom::trainer {

// Throws Error (where = `where`) unless `model` is a ModelProto (sentencepiece_model.proto) with at least one
// piece, in which
//   - pieces are UTF-8 of 1 to 4096 bytes without NUL and have finite scores, and no more than 64 user-defined pieces are
//     prefixes of one another;
//   - the character tables (precompiled_charsmap of the normalizer and the denormalizer) are double arrays (darts-clone) in
//     which every step and every result stays inside the array, there is no cycle, at most 32 results lie on one path (the
//     library has room for so many), and each result has at most 256 bytes.
void check_sentencepiece_model(std::string_view model, const std::string& where);

}  // namespace meshloom::trainer
