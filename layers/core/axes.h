// The logical axes that parameters and activations are labelled with. Which of them are split over which part
// of a machine is decided elsewhere; "" is an axis nobody splits.
#pragma once

namespace meshloom::layers::axis {

constexpr char kBatch[] = "batch";
constexpr char kSeq[] = "seq";
constexpr char kTokens[] = "tokens";  // batch and seq flattened, batch outermost
constexpr char kVocab[] = "vocab";
constexpr char kEmbed[] = "embed";
constexpr char kHeads[] = "heads";       // also heads and head_dim flattened
constexpr char kKvHeads[] = "kv_heads";  // also kv_heads and head_dim flattened
constexpr char kHeadDim[] = "head_dim";
constexpr char kMlp[] = "mlp";
constexpr char kExpert[] = "expert";

}  // namespace meshloom::layers::axis
