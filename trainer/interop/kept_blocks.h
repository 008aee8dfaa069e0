// Layers that keep the weights of a GGUF file in its blocks, in place of those that an import makes of them in f32.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "layers/models/causal_lm.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// Replaces each Linear and Embedding of the model whose weight is in blocks. `parameters` are those of the model as it is, and
// format_of says of each the format of the blocks that a layer can keep (kernels/block_quantized/formats.h), "" = it has none.
// Layers of a stack may differ. Notes how many of the `in_blocks` that the file has become f32 because something else has them,
// such as a mixture of experts.
void keep_blocks(layers::CausalLM::Config& model, const std::vector<NamedTensor>& parameters,
                 const std::function<std::string(const std::string& parameter)>& format_of,
                 std::int64_t in_blocks, const Note& note);

}  // namespace meshloom::trainer
