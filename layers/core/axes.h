// The logical axes with which the dimensions of parameters and activations are labelled. How they are sharded over
// devices is decided elsewhere. "" labels a dimension that is never sharded.
#pragma once

namespace meshloom::layers::axis {

constexpr char kBatch[] = "batch";
constexpr char kSeq[] = "seq";
constexpr char kTokens[] = "tokens";  // batch and seq flattened into one dimension, batch outermost
constexpr char kVocab[] = "vocab";
constexpr char kEmbed[] = "embed";
constexpr char kHeads[] = "heads";       // also for heads and head_dim flattened
constexpr char kKvHeads[] = "kv_heads";  // also for kv_heads and head_dim flattened
constexpr char kHeadDim[] = "head_dim";
constexpr char kMlp[] = "mlp";
constexpr char kExpert[] = "expert";  // of what experts have; the columns of a router are not labelled

}  // namespace meshloom::layers::axis
