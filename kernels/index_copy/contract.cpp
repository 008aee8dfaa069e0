#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/index_copy/index_copy.h"
#include "kernels/program/sizes.h"

namespace meshloom::kernels {
namespace {

enum Input : int { kPool, kX, kSlots };

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("index_copy", inputs, attrs);
  rules.inputs({"pool", "x", "slots"});
  rules.attributes({});
  const DType dtype = inputs[kPool].dtype;
  if (dtype == DType::i8 || dtype == DType::u8) {
    rules.dtype(kX, dtype);
  } else {
    rules.floating(kPool);
    rules.floating(kX);
  }
  rules.dtype(kSlots, DType::i32);
  rules.rank(kPool, 3, 8);
  Shape rows = rules[kPool].shape;
  rows.erase(rows.begin());
  rows[0] = rules[kX].rank() > 0 ? rules[kX].dim(0) : 1;
  rules.shape(kX, rows);
  rules.shape(kSlots, {rows[0]});
  const std::int64_t slots =
      product("index_copy, rows of the pool", {rules[kPool].dim(0), rules[kPool].dim(1)});
  rules.require(slots < std::int64_t{1} << 31, "the rows of the pool must be numbered in i32",
                std::to_string(slots));
  return {rules[kPool]};
}

// In place nothing but the named rows is written, and nothing of the pool is read.
double bytes(const CallView& call) {
  const auto size = static_cast<std::int64_t>(hal::size_of(call.inputs[kPool].dtype));
  return static_cast<double>(call.inputs[kX].bytes() + call.inputs[kSlots].bytes() +
                             call.inputs[kX].elements() * size);
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const IndexCopyDims d = index_copy_dims(call);
  if (outputs[0].data != inputs[kPool].data)
    std::memcpy(outputs[0].data, inputs[kPool].data, static_cast<std::size_t>(call.inputs[kPool].bytes()));
  const std::int64_t bytes = d.width * static_cast<std::int64_t>(hal::size_of(call.inputs[kPool].dtype));
  for (std::int64_t n = 0; n < d.rows; ++n) {
    const std::int64_t slot = inputs[kSlots].as<std::int32_t>()[n];
    if (slot < 0 || slot >= d.slots) continue;
    std::memcpy(outputs[0].data + slot * bytes, inputs[kX].data + n * bytes, static_cast<std::size_t>(bytes));
  }
}

// Every shard has all pages, of its own features.
std::string partition(const CallView& call) {
  const std::string features = letters(call.inputs[kPool].rank() - 2);
  return ".." + features + ",." + features + ",.->.." + features;
}

LowPrecision low_precision(const CallView&) { return {.any = {kPool, kX}}; }
Tolerance tolerance(const CallView&) { return {}; }
std::vector<std::pair<int, int>> in_place(const CallView&) { return {{kPool, 0}}; }

// Different rows in any order, some of them padding on either side.
void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  const std::uint64_t own = mix(seed, static_cast<std::uint64_t>(index));
  if (index != kSlots && hal::size_of(into.type.dtype) == 1) {
    for (std::int64_t i = 0; i < into.type.elements(); ++i)
      into.data[i] = static_cast<std::byte>(mix(own, static_cast<std::uint64_t>(i)));
    return;
  }
  if (index != kSlots) return fill_uniform(into, own, -1, 1);
  const IndexCopyDims d = index_copy_dims(call);
  Rng rng(mix(seed, 2));
  std::vector<std::int32_t> slots(static_cast<std::size_t>(d.slots));
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int32_t>(i);
  for (std::int64_t n = 0; n < d.rows; ++n) {
    auto& slot = into.as<std::int32_t>()[n];
    if (n >= d.slots || n % 11 == 3) {
      slot = n % 2 ? -1 - static_cast<std::int32_t>(n) : static_cast<std::int32_t>(d.slots + n % 3);
      continue;
    }
    std::swap(slots[static_cast<std::size_t>(n)],
              slots[static_cast<std::size_t>(rng.integer(n, d.slots - 1))]);
    slot = slots[static_cast<std::size_t>(n)];
  }
}

Case make(std::string name, std::int64_t pages, std::int64_t page, std::int64_t rows, const Shape& features,
          bool slow = false, DType pool = DType::f32, DType x = DType::f32) {
  Shape pool_shape{pages, page}, x_shape{rows};
  pool_shape.insert(pool_shape.end(), features.begin(), features.end());
  x_shape.insert(x_shape.end(), features.begin(), features.end());
  return {std::move(name), {{pool, pool_shape}, {x, x_shape}, {DType::i32, {rows}}}, {}, slow};
}

std::vector<Case> cases() {
  return {make("one", 1, 1, 1, {1}),
          make("page", 3, 16, 16, {2, 8}),
          make("odd", 7, 5, 13, {3, 7}),
          make("odd-from-f32", 7, 5, 13, {3, 7}, false, DType::bf16),
          make("padding", 2, 3, 37, {1, 20}),
          make("a-token", 9, 16, 1, {3, 64}),
          make("chunk", 5, 64, 130, {2, 80}),
          make("wide", 2, 256, 70, {2, 3, 33}),
          make("f16-from-f32", 5, 16, 33, {3, 20}, false, DType::f16),
          make("f32-from-bf16", 5, 16, 33, {3, 20}, false, DType::f32, DType::bf16),
          make("bf16-from-f16", 5, 16, 33, {2, 64}, false, DType::bf16, DType::f16),
          make("int8", 5, 16, 33, {3, 64}, false, DType::i8, DType::i8),
          make("int8-odd", 4, 5, 13, {3, 7}, false, DType::i8, DType::i8),
          make("nf4", 5, 16, 33, {2, 32}, false, DType::u8, DType::u8),
          make("decode-32", 512, 16, 32, {3, 64}, true, DType::bf16),
          make("prefill-512", 512, 16, 512, {3, 64}, true, DType::bf16),
          make("prefill-512-f32", 512, 16, 512, {8, 128}, true)};
}

Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  const auto dtype = [&] {
    const std::int64_t kind = rng.integer(0, 4);
    return kind == 0 ? DType::bf16 : kind == 1 ? DType::f16 : DType::f32;
  };
  const std::int64_t page = rng.of({1, 5, 16, 17, 64});
  DType pool = dtype(), x = dtype();
  if (rng.flip(0.3)) pool = x = rng.flip() ? DType::i8 : DType::u8;
  return make("random", rng.integer(1, 9), page, rng.extent(70),
              {rng.integer(1, 4), rng.of({1, 7, 8, 20, 32, 64, 80})}, false, pool, x);
}

}  // namespace

IndexCopyDims index_copy_dims(const CallView& call) {
  const TensorType &pool = call.inputs[kPool], &x = call.inputs[kX];
  return {pool.dim(0) * pool.dim(1), x.dim(0), x.elements() / x.dim(0)};
}

Tensor index_copy(Tensor pool, Tensor x, Tensor slots) {
  return pool.builder->call1("index_copy", {pool, x, slots});
}

void add_index_copy(Catalog& catalog) {
  catalog.add(Contract{.name = "index_copy",
                       .infer = infer,
                       .flops = no_flops,
                       .bytes = bytes,
                       .reference = reference,
                       .low_precision = low_precision,
                       .partition = partition,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = in_place,
                       .make_input = make_input,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels
