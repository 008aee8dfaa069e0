// Call information of a step of inference: some new tokens of one or more sequences, of which the model has seen the tokens
// before. A prompt, a part of one, the next token of each sequence, and any mixture of these are all such a step.
#pragma once

#include <cstdint>

#include "kernels/program/builder.h"

namespace meshloom::layers {

// The new tokens of R sequences stand one behind another in one row of N, Tokens{1, N}. Positions says where each stands in its
// sequence, and Segments which are padding. The keys and values of all tokens are kept in pages, blocks of rows of a pool;
// a page belongs to one sequence at a time (Kwon et al., 2023); or each of the sequences that run at once has rows of its own. The
// tensors are i32 and as the ops index_copy and paged_attention take them.
struct InferenceStep {
  kernels::Tensor slots;       // (N): the row of the pool for the token's keys and values; negative = none
  kernels::Tensor page_table;  // (R, pages of the longest sequence): the pages of each sequence in order
  kernels::Tensor
      query_starts;  // (R + 1): the new tokens of sequence r are those from query_starts[r] to query_starts[r + 1]
  kernels::Tensor lengths;                     // (R): tokens of each sequence, the new ones included
  std::int64_t page_size = 0, pages = 0;       // rows of a page, and pages of the pool
  kernels::DType dtype = kernels::DType::f32;  // of what is kept, where a cache does not say it itself
  kernels::Tensor sequence_ids;            // (R, 1): the number of each sequence among those that run at once
  std::int64_t sequences = 0, length = 0;  // that run at once, and tokens of the longest
  std::int64_t step_tokens = 0;            // new tokens of any program that shares the caches, at most
};

// Call information of models with an encoder. The keys and values that the cross-attentions make of a source are kept once for each
// sequence, in a pass over the source ahead of the steps that write for it; those read them. All tensors are i32.
struct SourceStep {
  std::int64_t sequences = 0, length = 0;      // that run at once, and tokens of the longest source
  kernels::DType dtype = kernels::DType::f32;  // of what is kept
  kernels::Tensor slots =
      {};  // in the pass over the source (T): its rows of a pool of sequences x length, negative = none
  // In an InferenceStep. A new token stands for a sequence of its own in paged_attention, so that it sees all of its source.
  kernels::Tensor sequence_ids = {};  // (N, 1): the sequence of each new token
  kernels::Tensor starts = {};        // (N + 1): 0, 1, ..., N
  kernels::Tensor lengths = {};       // (N): tokens of its source; 0 = none
};

// Call information: the rows of the call are those of some tokens only, as where logits are wanted.
struct SelectedTokens {
  kernels::Tensor rows;  // (L) i32: their indices among all tokens of the call
};

}  // namespace meshloom::layers
