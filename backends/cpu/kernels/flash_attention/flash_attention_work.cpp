#include "backends/cpu/kernels/flash_attention/flash_attention_work.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/simd/philox_words.h"

namespace meshloom::backends::cpu {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

std::int32_t side(std::int64_t width) {
  return width < kernels::kUnlimited ? static_cast<std::int32_t>(width) : FlashWork::kUnlimitedSide;
}

// The optional inputs in the order of their bindings: the index of the input, and the field of FlashWork that holds
// the index of its binding.
struct Optional {
  int input;
  std::int32_t FlashWork::*binding;
};
std::vector<Optional> optional_inputs(const kernels::AttentionDims& dims) {
  std::vector<Optional> all;
  const auto add = [&](int input, std::int32_t FlashWork::*binding) {
    if (input >= 0) all.push_back({input, binding});
  };
  add(dims.q_segments, &FlashWork::q_segments);
  add(dims.k_segments, nullptr);
  add(dims.prefix, &FlashWork::prefix);
  add(dims.query_offset, &FlashWork::query_offset);
  add(dims.sink, &FlashWork::sink);
  add(dims.slopes, &FlashWork::slopes);
  add(dims.rng_state, &FlashWork::rng_state);
  add(dims.bias, &FlashWork::bias);
  add(dims.attention_bitmask, &FlashWork::attention_bitmask);
  return all;
}

// The number of inputs and outputs that every call of an op has; the bindings begin with them.
struct Fixed {
  std::size_t inputs, outputs;
};
Fixed fixed_tensors(std::string_view op) {
  if (op == "flash_attention") return {flash::v + 1, 2};
  return {flash::d_o + 1, op == "flash_attention_grad" ? 3u : 1u};
}

}  // namespace

FlashWork flash_work(const kernels::CallView& call) {
  const kernels::AttentionDims dims = kernels::attention_dims(call);
  FlashWork work{};
  work.b = static_cast<std::int32_t>(dims.b);
  work.s = static_cast<std::int32_t>(dims.s);
  work.t = static_cast<std::int32_t>(dims.t);
  work.h = static_cast<std::int32_t>(dims.h);
  work.kv = static_cast<std::int32_t>(dims.kv);
  work.d = static_cast<std::int32_t>(dims.d);
  work.dv = static_cast<std::int32_t>(dims.dv);
  work.left = side(dims.left);
  work.right = side(dims.right);
  work.scale = static_cast<float>(dims.scale);
  work.soft_cap = static_cast<float>(dims.soft_cap);
  constexpr std::int32_t kLater[3] = {};  // rng_state is read when the kernel runs
  work.dropout = kernels::attention_dropout(dims, kLater);
  const auto plane = [&](bool rows, bool heads) {
    return static_cast<std::int32_t>(rows ? heads ? dims.h : 1 : 0);
  };
  work.bias_rows = plane(dims.bias_rows, dims.bias_heads), work.bias_heads = dims.bias_heads;
  work.bitmask_rows = plane(dims.bitmask_rows, dims.bitmask_heads), work.bitmask_heads = dims.bitmask_heads;
  work.tile_q = work.tile_k = work.span = 1;
  work.bf16_pairs = call.inputs[0].dtype == hal::DType::bf16;
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
  const Fixed has = fixed_tensors(args.call.op);
  auto next = static_cast<std::int32_t>(has.inputs + has.outputs);
  for (const Optional& one : optional_inputs(kernels::attention_dims(args.call))) {
    if (one.binding) work.*one.binding = next;
    ++next;
  }
  if (args.outputs.size() > has.outputs) work.dsink = next++;
  if (args.workspace.buffer != nullptr) work.partial = next;
  return work;
}

void record_flash(const kernels::EncodeArgs& args, const std::string& kernel,
                  std::array<std::uint32_t, 3> items, const std::vector<hal::Word>& constants,
                  hal::Access workspace) {
  std::vector<hal::Binding> bindings;
  const Fixed has = fixed_tensors(args.call.op);
  for (std::size_t i = 0; i < has.inputs; ++i) bindings.push_back(hal::reads(args.inputs[i]));
  for (std::size_t i = 0; i < has.outputs; ++i) bindings.push_back(hal::writes(args.outputs[i]));
  for (const Optional& one : optional_inputs(kernels::attention_dims(args.call)))
    bindings.push_back(hal::reads(args.inputs[static_cast<std::size_t>(one.input)]));
  if (args.outputs.size() > has.outputs) bindings.push_back(hal::writes(args.outputs[has.outputs]));
  if (args.workspace.buffer != nullptr) {
    bindings.push_back(args.workspace);
    bindings.back().access = workspace;
  }
  record_dispatch(args, kernel, items, bindings, constants);
}

namespace {

// The reason why a bf16 call is refused, or "". Only the products are in bf16; everything else stays f32.
std::string bf16_refusal(const kernels::CallView& call) {
  if (!bf16_pairs_on_amx()) return "needs a matrix unit that multiplies bf16";
  const kernels::AttentionDims dims = kernels::attention_dims(call);
  if (dims.d % 2 != 0 || dims.dv % 2 != 0) return "bf16 needs an even head dim";
  if (dims.sink >= 0 && call.op != "flash_attention") return "computes the gradient of sinks in f32 only";
  const Fixed has = fixed_tensors(call.op);
  const auto low_precision = [](const kernels::TensorType& type) {
    return hal::is_low_precision(type.dtype);
  };
  if (std::any_of(call.inputs.begin() + static_cast<std::ptrdiff_t>(has.inputs), call.inputs.end(),
                  low_precision))
    return "takes optional tensors in f32 only";
  return {};
}

}  // namespace

std::string flash_refusal(const kernels::CallView& call, bool bf16_pairs) {
  if (bf16_pairs && call.inputs[0].dtype == hal::DType::bf16) {
    if (std::string no = bf16_refusal(call); !no.empty()) return no;
  } else if (call.inputs[0].dtype != hal::DType::f32)
    return "computes f32 only, not " + std::string(hal::to_string(call.inputs[0].dtype));
  const kernels::AttentionDims dims = kernels::attention_dims(call);
  for (const std::int64_t size : {dims.d, dims.dv})
    if (size < 1 || size > 256) return "head dim " + std::to_string(size) + " is not in 1..256";
  for (const std::int64_t size : {dims.b, dims.s, dims.t, dims.h})
    if (size > kMaxInt) return "a dimension of " + std::to_string(size) + " exceeds 32 bits";
  for (const std::int64_t width : {dims.left, dims.right})
    if (std::abs(width) > kMaxInt && width < kernels::kUnlimited)
      return "a window of " + std::to_string(width) + " exceeds 32 bits";
  return {};
}

std::string flash_refusal_without_dropout(const kernels::CallView& call) {
  if (kernels::attention_dims(call).rng_state >= 0) return "does not support dropout";
  return flash_refusal(call);
}

const float* flash_bias(const FlashWork& work, const KernelArgs& args, std::int64_t b, std::int64_t h) {
  if (work.bias == 0) return nullptr;
  return args.at(static_cast<std::size_t>(work.bias)) + work.bias_plane(b, h) * work.s * work.t;
}
const std::uint32_t* flash_bits(const FlashWork& work, const KernelArgs& args, std::int64_t b,
                                std::int64_t h) {
  if (work.attention_bitmask == 0) return nullptr;
  return args.at<std::uint32_t>(static_cast<std::size_t>(work.attention_bitmask)) +
         work.bitmask_plane(b, h) * work.s * work.mask().bits_words();
}

kernels::AttentionDropout flash_dropout(const FlashWork& work, const KernelArgs& args) {
  kernels::AttentionDropout dropout = work.dropout;
  const auto* words = args.at<const std::uint32_t>(static_cast<std::size_t>(work.rng_state));
  dropout.seed = words[0], dropout.step = words[1], dropout.first_row = words[2];
  return dropout;
}

void dropout_columns(const kernels::AttentionDropout& dropout, std::int64_t b, std::int64_t h,
                     std::int64_t query, std::int64_t queries, std::int64_t key, std::int64_t keys,
                     float* factors, std::int64_t stride) {
  constexpr auto kAtOnce = static_cast<std::int64_t>(kPhiloxBatch);
  std::uint32_t low[kPhiloxBatch] = {}, high[kPhiloxBatch], words[4 * kPhiloxBatch];
  std::fill_n(high, kPhiloxBatch, dropout.row(b));
  for (std::int64_t block = key / 4; 4 * block < key + keys; ++block)
    for (std::int64_t first = 0; first < queries; first += kAtOnce) {
      const std::int64_t count = std::min(kAtOnce, queries - first);
      for (std::int64_t i = 0; i < count; ++i) low[i] = dropout.block(h, query + first + i, block);
      philox_batch(static_cast<std::size_t>(count), low, high, dropout.step, dropout.seed, dropout.k0,
                   dropout.k1, words);
      for (std::int64_t j = std::max(key, 4 * block); j < std::min(key + keys, 4 * block + 4); ++j)
        for (std::int64_t i = 0; i < count; ++i)
          factors[(j - key) * stride + first + i] = dropout.factor(words[j % 4 * kAtOnce + i]);
    }
}

}  // namespace meshloom::backends::cpu
