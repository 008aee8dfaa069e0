#include "backends/cpu/kernels/flash_attention_work.h"

#include <limits>

namespace meshloom::backends::cpu {

FlashWork flash_work(const kernels::CallView& call) {
  const kernels::AttentionDims dims = kernels::attention_dims(call);
  FlashWork work{};
  work.b = static_cast<std::int32_t>(dims.b);
  work.s = static_cast<std::int32_t>(dims.s);
  work.t = static_cast<std::int32_t>(dims.t);
  work.h = static_cast<std::int32_t>(dims.h);
  work.kv = static_cast<std::int32_t>(dims.kv);
  work.d = static_cast<std::int32_t>(dims.d);
  work.causal = dims.causal;
  work.scale = static_cast<float>(dims.scale);
  work.tile_q = work.tile_k = work.span = 1;
  return work;
}

FlashWork flash_work(const kernels::EncodeArgs& args) {
  FlashWork work = flash_work(args.call);
  const auto take = [&](const char* name, std::int32_t& into) {
    const auto found = args.choice.params.find(name);
    if (found != args.choice.params.end()) into = static_cast<std::int32_t>(found->second);
  };
  take("tile_q", work.tile_q);
  take("tile_k", work.tile_k);
  take("span", work.span);
  return work;
}

std::string flash_refusal(const kernels::CallView& call) {
  const kernels::AttentionDims dims = kernels::attention_dims(call);
  if (!dims.plain()) return "takes full and causal attention, not " + dims.extras();
  for (const kernels::TensorType& type : call.inputs)
    if (type.dtype != hal::DType::f32)
      return "computes f32 only, not " + std::string(hal::to_string(type.dtype));
  if (dims.d < 1 || dims.d > 256) return "head dim " + std::to_string(dims.d) + " is not in 1..256";
  const std::int64_t largest = std::max({dims.b, dims.s, dims.t, dims.h});
  if (largest > std::numeric_limits<std::int32_t>::max())
    return "a dimension of " + std::to_string(largest) + " exceeds 32 bits";
  return {};
}

}  // namespace meshloom::backends::cpu
