// What the default run of random calls must find: kernels that are right but for one fault at the edge of a tile, in a tail,
// in an offset, in what a tile before left behind, or at the edge of a mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/block_quantized/block_quantized.h"
#include "kernels/flash_attention/flash_attention.h"
#include "kernels/grouped_matmul/grouped_matmul.h"
#include "kernels/index_copy/index_copy.h"
#include "kernels/int8_matmul/int8_matmul.h"
#include "kernels/matmul/matmul.h"
#include "kernels/nf4_matmul/nf4_matmul.h"
#include "kernels/paged_attention/paged_attention.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/planted.h"

namespace meshloom::tests {
namespace {

using kernels::CallView;
using kernels::Fit;
using kernels::HostTensor;
using kernels::TensorType;
using Int = std::int64_t;
using Tensors = std::vector<HostTensor>;

// A call whose outputs are right, to be spoiled.
class Call {
 public:
  Call(Host& host, Tensors inputs, const kernels::Contract& contract)
      : view(host.call), inputs_(std::move(inputs)), contract_(contract), outputs_(host.outputs) {}

  const CallView& view;

  bool has(const char* flag) const { return view.attrs.flag(flag); }
  Int rows(int o = 0) const { return view.outputs[at(o)].elements() / columns(o); }
  Int columns(int o = 0) const { return view.outputs[at(o)].dim(-1); }
  float* row(int o, Int r) { return outputs_[at(o)].as<float>() + r * columns(o); }
  template <typename T = float>
  const T* input(int i) const {
    return inputs_[at(i)].as<T>();
  }
  void clear_row(int o, Int r) { std::fill_n(row(o, r), columns(o), 0.0f); }
  void clear_column(int o, Int c) {
    for (Int r = 0; r < rows(o); ++r) row(o, r)[c] = 0;
  }

  // The outputs for changed inputs, and attributes.
  template <typename Change>
  Tensors after(Change change, const kernels::Attrs* attrs = nullptr) const {
    Tensors inputs = inputs_;
    change(inputs);
    return reference_outputs(contract_, {view.op, view.inputs, view.outputs, attrs ? *attrs : view.attrs},
                             inputs);
  }
  Tensors with(const kernels::Attrs& attrs) const {
    return after([](Tensors&) {}, &attrs);
  }
  // Takes over a row, and all of an output.
  void take_row(const Tensors& other, int o, Int r) {
    std::copy_n(other[at(o)].as<float>() + r * columns(o), columns(o), row(o, r));
  }
  void take(const Tensors& other, int o) {
    for (Int r = 0; r < rows(o); ++r) take_row(other, o, r);
  }
  void take(const Tensors& other) {
    for (int o = 0; o < static_cast<int>(outputs_.size()); ++o)
      std::copy_n(other[at(o)].data.data(), other[at(o)].data.size(), outputs_[at(o)].data);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  Tensors inputs_;
  const kernels::Contract& contract_;
  std::vector<kernels::TensorView> outputs_;
};

struct Fault {
  std::string name, op;
  std::function<void(Call&)> plant;
  Fit (*fit)(const CallView&, const hal::DeviceInfo&) = nullptr;
};

Fit plain(const CallView&, const hal::DeviceInfo&) { return Fit::yes(); }
// A variant that names its tiles.
Fit tiled(const CallView&, const hal::DeviceInfo&) { return Fit::yes({{"rows", 128}, {"height", 8}}); }

bool behind(Int size, Int tile, Int rest) { return size > tile && size % tile == rest; }

std::function<void(Call&)> last_row(int o, Int tile, Int rest) {
  return [=](Call& call) {
    if (behind(call.rows(o), tile, rest)) call.clear_row(o, call.rows(o) - 1);
  };
}
std::function<void(Call&)> last_column(int o, Int tile, Int rest) {
  return [=](Call& call) {
    if (behind(call.columns(o), tile, rest)) call.clear_column(o, call.columns(o) - 1);
  };
}
// The last element of every row of an input.
std::function<void(Tensors&)> last_elements(int i, float value) {
  return [=](Tensors& inputs) {
    HostTensor& x = inputs[static_cast<std::size_t>(i)];
    const Int n = x.type.dim(-1);
    for (Int at = n - 1; at < x.type.elements(); at += n) x.as<float>()[at] = value;
  };
}
std::function<void(Tensors&)> no_last_row(int i) {
  return [=](Tensors& inputs) {
    HostTensor& x = inputs[static_cast<std::size_t>(i)];
    std::fill_n(x.as<float>() + x.type.elements() - x.type.dim(-1), x.type.dim(-1), 0.0f);
  };
}
// Copies range `from` of an input over range `to`, each of `count` floats.
void move(HostTensor& x, Int from, Int to, Int count) {
  std::copy_n(x.as<float>() + from, count, x.as<float>() + to);
}

// --- matmul ---
// A's columns [begin, end) times `factor`.
Tensors scaled_k(const Call& call, Int begin, Int end, float factor) {
  const kernels::MatmulDims d = kernels::matmul_dims(call.view);
  return call.after([&](Tensors& inputs) {
    for (Int g = 0; g < d.g; ++g)
      for (Int k = begin; k < end; ++k)
        for (Int m = 0; m < d.m; ++m)
          inputs[0].as<float>()[d.trans_a ? (g * d.k + k) * d.m + m : (g * d.m + m) * d.k + k] *= factor;
  });
}
void matmul_row(Call& call) {
  const kernels::MatmulDims d = kernels::matmul_dims(call.view);
  for (Int g = 0; d.m > 128 && d.m % 8 == 7 && g < d.g; ++g) call.clear_row(0, (g + 1) * d.m - 1);
}
void matmul_k_tail(Call& call) {
  const Int k = kernels::matmul_dims(call.view).k;
  if (k > 64 && k % 16 != 0) call.take(scaled_k(call, k / 16 * 16, k, 0));
}
// What lies behind K in a tile of 32 is what the tile before left there.
void matmul_stale(Call& call) {
  const Int k = kernels::matmul_dims(call.view).k;
  if (k > 32 && k % 32 != 0) call.take(scaled_k(call, k - 32, k / 32 * 32, 2));
}
void matmul_batch(Call& call) {
  const kernels::MatmulDims d = kernels::matmul_dims(call.view);
  if (d.g < 3) return;
  const Int size = d.k * d.n;
  const Tensors other =
      call.after([&](Tensors& inputs) { move(inputs[1], (d.g - 2) * size, (d.g - 1) * size, size); });
  for (Int m = 0; m < d.m; ++m) call.take_row(other, 0, (d.g - 1) * d.m + m);
}
void matmul_bias(Call& call) {
  const kernels::MatmulDims d = kernels::matmul_dims(call.view);
  if (d.bias < 0 || d.n <= 64 || d.n % 64 == 0) return;
  call.take(call.after([&](Tensors& inputs) {
    std::fill_n(inputs[static_cast<std::size_t>(d.bias)].as<float>() + d.n / 64 * 64, d.n % 64, 0.0f);
  }));
}
void matmul_residual(Call& call) {
  const kernels::MatmulDims d = kernels::matmul_dims(call.view);
  if (d.residual < 0 || !behind(d.m, 16, 1)) return;
  call.take(call.after([&](Tensors& inputs) {
    for (Int g = 0; g < d.g; ++g)
      move(inputs[static_cast<std::size_t>(d.residual)], (g * d.m + d.m - 2) * d.n, (g * d.m + d.m - 1) * d.n,
           d.n);
  }));
}

// The last row gets the residual of the one before.
std::function<void(Call&)> norm_residual(int input) {
  return [=](Call& call) {
    const Int rows = call.rows(), n = call.columns();
    if (!call.has("residual") || !behind(rows, 16, 1)) return;
    call.take(call.after([&](Tensors& inputs) {
      move(inputs[static_cast<std::size_t>(input)], (rows - 2) * n, (rows - 1) * n, n);
    }));
  };
}

// --- flash_attention ---
kernels::AttentionDims dims(const Call& call) { return kernels::attention_dims(call.view); }
// In place of the last key, one behind whole tiles of 32, stands the one that the tile before had there.
void stale_key(Call& call) {
  const kernels::AttentionDims d = dims(call);
  if (!behind(d.t, 32, 1)) return;
  call.take(call.after([&](Tensors& inputs) {
    for (Int b = 0; b < d.b; ++b)
      for (const auto& [i, width] : {std::pair{1, d.kv * d.d}, {2, d.kv * d.dv}})
        move(inputs[static_cast<std::size_t>(i)], (b * d.t + d.t - 33) * width, (b * d.t + d.t - 1) * width,
             width);
  }));
}
// Rows of o, as (row of the batch, query, head): those that `chosen` names.
void take_queries(Call& call, const Tensors& other, const std::function<bool(Int query, Int head)>& chosen) {
  const kernels::AttentionDims d = dims(call);
  for (Int r = 0; r < d.b * d.s * d.h; ++r)
    if (chosen(r / d.h % d.s, r % d.h)) call.take_row(other, 0, r);
}
void causal_edge(Call& call) {
  if (!dims(call).causal) return;
  kernels::Attrs attrs;
  for (const auto& [name, value] : call.view.attrs.items())
    if (name != "causal") attrs.set(name, value);
  attrs.set("right", Int{1});
  take_queries(call, call.with(attrs), [](Int query, Int) { return query % 16 == 15; });
}
void window_edge(Call& call) {
  if (!call.view.attrs.has("left")) return;
  kernels::Attrs attrs = call.view.attrs;
  attrs.set("left", attrs.integer("left") + 1);
  take_queries(call, call.with(attrs), [](Int query, Int) { return query >= 32; });
}
void last_query(Call& call) {
  const kernels::AttentionDims d = dims(call);
  for (Int b = 0; behind(d.s, 8, 7) && d.s > 32 && b < d.b; ++b)
    for (Int h = 0; h < d.h; ++h) call.clear_row(0, (b * d.s + d.s - 1) * d.h + h);
}
void wrong_head(Call& call) {
  const kernels::AttentionDims d = dims(call);
  if (d.kv < 2 || d.h / d.kv != 3) return;
  const Tensors other = call.after([&](Tensors& inputs) {
    for (Int r = 0; r < d.b * d.t; ++r)
      for (const auto& [i, width] : {std::pair{1, d.d}, {2, d.dv}})
        move(inputs[static_cast<std::size_t>(i)], r * d.kv * width, (r * d.kv + d.kv - 1) * width, width);
  });
  take_queries(call, other, [&](Int, Int head) { return head == d.h - 1; });
}
void stale_segment(Call& call) {
  const kernels::AttentionDims d = dims(call);
  if (d.q_segments < 0) return;
  const Tensors other = call.after([&](Tensors& inputs) {
    auto* segments = inputs[static_cast<std::size_t>(d.q_segments)].as<std::int32_t>();
    for (Int b = 0; b < d.b; ++b)
      for (Int i = 32; i < d.s; i += 32) segments[b * d.s + i] = segments[b * d.s + i - 1];
  });
  take_queries(call, other, [](Int query, Int) { return query % 32 == 0; });
}
void lse_edge(Call& call) {
  const kernels::AttentionDims d = dims(call);
  for (Int r = 0; behind(d.s, 32, 1) && r < d.b * d.h; ++r) call.row(1, r)[d.s - 1] += 0.1f;
}
// Bits of keys 32 to 63 are those of 0 to 31.
void stale_bits(Call& call) {
  const kernels::AttentionDims d = dims(call);
  if (d.attention_bitmask < 0 || d.t <= 32) return;
  call.take(call.after([&](Tensors& inputs) {
    HostTensor& bits = inputs[static_cast<std::size_t>(d.attention_bitmask)];
    auto* words = bits.as<std::uint32_t>();
    for (Int at = 0; at < bits.type.elements(); at += d.bits_words()) words[at + 1] = words[at];
  }));
}
void prefix_edge(Call& call) {
  const kernels::AttentionDims d = dims(call);
  if (d.prefix < 0) return;
  call.take(call.after([&](Tensors& inputs) {
    for (Int b = 0; b < d.b; ++b) --inputs[static_cast<std::size_t>(d.prefix)].as<std::int32_t>()[b];
  }));
}
void last_key_gradient(Call& call) {
  const kernels::AttentionDims d = dims(call);
  for (Int b = 0; behind(d.t, 16, 1) && b < d.b; ++b)
    for (Int h = 0; h < d.kv; ++h) call.clear_row(1, (b * d.t + d.t - 1) * d.kv + h);
}
void last_query_gradient(Call& call) {
  const kernels::AttentionDims d = dims(call);
  for (Int b = 0; behind(d.s, 8, 7) && b < d.b; ++b)
    for (Int h = 0; h < d.h; ++h) call.clear_row(0, (b * d.s + d.s - 1) * d.h + h);
}
void stale_key_gradient(Call& call) {
  const kernels::AttentionDims d = dims(call);
  for (Int b = 0; behind(d.t, 32, 1) && b < d.b; ++b)
    for (Int h = 0; h < d.kv; ++h)
      for (Int c = 0; c < d.d; ++c)
        call.row(1, (b * d.t + d.t - 1) * d.kv + h)[c] += call.row(1, (b * d.t + d.t - 33) * d.kv + h)[c];
}
// One of the query heads that share a key head adds nothing.
void lost_head(Call& call) {
  const kernels::AttentionDims d = dims(call);
  if (d.h == d.kv) return;
  call.take(call.after([&](Tensors& inputs) {
    for (Int r = 0; r < d.b * d.s; ++r)
      std::fill_n(inputs[5].as<float>() + (r * d.h + d.h - 1) * d.dv, d.dv, 0.0f);
  }),
            2);
}

// --- rows of groups ---
void group_row(Call& call) {
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(call.view);
  const auto* offsets = call.input<std::int32_t>(2);
  for (Int e = 0; e < d.groups; ++e)
    if ((offsets[e + 1] - offsets[e]) % 8 == 7) call.clear_row(0, offsets[e + 1] - 1);
}
// A group behind one without rows reads that one's matrix.
void group_behind_empty(Call& call) {
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(call.view);
  const auto* offsets = call.input<std::int32_t>(2);
  for (Int e = 1; e < d.groups; ++e) {
    if (offsets[e] != offsets[e - 1]) continue;
    const Tensors other =
        call.after([&](Tensors& inputs) { move(inputs[1], (e - 1) * d.n * d.k, e * d.n * d.k, d.n * d.k); });
    for (Int r = offsets[e]; r < offsets[e + 1]; ++r) call.take_row(other, 0, r);
  }
}
// Rows behind the last group have its matrix.
void group_without_end(Call& call) {
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(call.view);
  const Int end = call.input<std::int32_t>(2)[d.groups];
  const Tensors other = call.after(
      [&](Tensors& inputs) { inputs[2].as<std::int32_t>()[d.groups] = static_cast<std::int32_t>(d.rows); });
  for (Int r = end; r < d.rows; ++r) call.take_row(other, 0, r);
}
// From the second tile of 16 rows on, a group has the matrix of the next one.
void group_of_the_next_tile(Call& call) {
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(call.view);
  const auto* offsets = call.input<std::int32_t>(2);
  for (Int e = 0; e + 1 < d.groups; ++e) {
    if (offsets[e + 1] - offsets[e] <= 16) continue;
    const Tensors other =
        call.after([&](Tensors& inputs) { move(inputs[1], (e + 1) * d.n * d.k, e * d.n * d.k, d.n * d.k); });
    for (Int r = offsets[e] + 16; r < offsets[e + 1]; ++r) call.take_row(other, 0, r);
  }
}
// A group has the first row of the next one besides.
void group_outer_one_more(Call& call) {
  const auto* offsets = call.input<std::int32_t>(2);
  const Int groups = call.view.inputs[2].elements() - 1, size = call.view.outputs[0].elements() / groups;
  for (Int e = 0; e + 1 < groups; ++e) {
    if (offsets[e + 2] == offsets[e + 1] || offsets[e + 1] == offsets[e]) continue;
    const Tensors other = call.after([&](Tensors& inputs) { ++inputs[2].as<std::int32_t>()[e + 1]; });
    std::copy_n(other[0].as<float>() + e * size, size, call.row(0, 0) + e * size);
  }
}
void group_outer_tail(Call& call) {
  const auto* offsets = call.input<std::int32_t>(2);
  const Int groups = call.view.inputs[2].elements() - 1, m = call.view.inputs[0].dim(1);
  call.take(call.after([&](Tensors& inputs) {
    for (Int e = 0; e < groups; ++e)
      if (behind(offsets[e + 1] - offsets[e], 16, 1))
        std::fill_n(inputs[0].as<float>() + (offsets[e + 1] - 1) * m, m, 0.0f);
  }));
}

// --- pages ---
using Paged = kernels::PagedAttentionDims;
Paged paged_dims(const Call& call) { return kernels::paged_attention_dims(call.view); }
std::int32_t* integers(Tensors& inputs, int input) {
  return inputs[static_cast<std::size_t>(input)].as<std::int32_t>();
}
// The last row of every page is read from the page behind.
void page_boundary(Call& call) {
  const Paged d = paged_dims(call);
  const auto *table = call.input<std::int32_t>(d.page_table), *lengths = call.input<std::int32_t>(d.lengths);
  call.take(call.after([&](Tensors& inputs) {
    for (Int r = 0; r < d.r; ++r)
      for (Int m = 0; m + 1 < d.m && (m + 1) * d.page < lengths[r]; ++m)
        for (const int i : {int{Paged::kKPool}, d.v_pool}) {
          HostTensor& pool = inputs[static_cast<std::size_t>(i)];
          const Int row = pool.type.bytes() / (d.p * d.page);
          const auto last = [&](Int at) {
            return pool.data.data() + (d.page_of(table[r * d.m + at]) * d.page + d.page - 1) * row;
          };
          std::copy_n(last(m + 1), row, last(m));
        }
  }));
}
// Of a page that is not full the row behind the last key is seen too.
void stale_page(Call& call) {
  const Paged d = paged_dims(call);
  kernels::Attrs attrs = call.view.attrs;
  if (attrs.has("left")) attrs.set("left", attrs.integer("left") + 1);
  call.take(call.after(
      [&](Tensors& inputs) {
        for (Int r = 0; r < d.r; ++r) {
          std::int32_t& length = integers(inputs, d.lengths)[r];
          if (length % d.page != 0) ++length;
        }
      },
      &attrs));
}
void neighbours_pages(Call& call) {
  const Paged d = paged_dims(call);
  if (d.r < 2) return;
  call.take(call.after([&](Tensors& inputs) {
    std::int32_t* table = integers(inputs, d.page_table);
    std::copy_n(table + (d.r - 2) * d.m, d.m, table + (d.r - 1) * d.m);
  }));
}
// A chunk's queries see the keys of a chunk that stands at the beginning.
void chunk_offset(Call& call) {
  const Paged d = paged_dims(call);
  const auto* starts = call.input<std::int32_t>(d.query_starts);
  call.take(call.after([&](Tensors& inputs) {
    for (Int r = 0; r < d.r; ++r)
      if (const std::int32_t count = starts[r + 1] - starts[r]; count > 1)
        integers(inputs, d.lengths)[r] = count;
  }));
}
// Every kv head has the scales of the first.
void scales_of_a_head(Call& call) {
  const Paged d = paged_dims(call);
  if (d.k_scales < 0 || d.kv < 2) return;
  call.take(call.after([&](Tensors& inputs) {
    for (const auto& [input, features] : {std::pair{d.k_scales, d.d}, {d.v_scales, d.value_row()}})
      for (Int row = 0, each = d.scales(features); row < d.p * d.page; ++row) {
        float* scales = inputs[static_cast<std::size_t>(input)].as<float>() + row * d.kv * each;
        for (Int h = 1; h < d.kv; ++h) std::copy_n(scales, each, scales + h * each);
      }
  }));
}
// What lies behind a ring's last row is not looked for in its first.
void end_of_the_ring(Call& call) {
  const Paged d = paged_dims(call);
  if (!d.ring) return;
  kernels::Attrs attrs;
  for (const auto& [name, value] : call.view.attrs.items())
    if (name != "ring") attrs.set(name, value);
  call.take(call.after([](Tensors&) {}, &attrs));
}
// Values are read from the last features of the keys instead of the first. Queries are rotated like keys, so that scores stay.
void values_behind(Call& call) {
  const Paged d = paged_dims(call);
  if (!d.values_in_keys() || d.k_scales >= 0) return;
  call.take(call.after([&](Tensors& inputs) {
    for (const int i : {Paged::kQ, Paged::kKPool}) {
      HostTensor& x = inputs[static_cast<std::size_t>(i)];
      for (float* row = x.as<float>(); row != x.as<float>() + x.type.elements(); row += d.d)
        std::rotate(row, row + (d.d - d.dv), row + d.d);
    }
  }));
}
void last_slot(Call& call) {
  const kernels::IndexCopyDims d = kernels::index_copy_dims(call.view);
  call.take(call.after([&](Tensors& inputs) {
    std::replace(integers(inputs, 2), integers(inputs, 2) + d.rows, static_cast<std::int32_t>(d.slots - 1),
                 std::int32_t{-1});
  }));
}
// Every batch row is turned by the positions of the first.
void positions_of_the_first(Call& call) {
  if (!call.has("positions")) return;
  const Int batch = call.view.inputs[1].dim(0), s = call.view.inputs[1].dim(1);
  call.take(call.after([&](Tensors& inputs) {
    for (Int b = 1; b < batch; ++b) std::copy_n(integers(inputs, 1), s, integers(inputs, 1) + b * s);
  }));
}

// The last code of a block's tail, an element of code 2 or more, is that of the neighbour below.
void last_code(Call& call, int o, int codes) {
  const Int count = call.view.inputs[0].elements();
  auto* bytes = reinterpret_cast<std::uint8_t*>(call.row(o, 0));
  std::uint8_t& code = bytes[(count - 1) / 256 * 260 + (count - 1) % 256];
  if (count > 4 && count % 4 == 1 && code % codes > 1) --code;
}

std::vector<Fault> faults() {
  return {
      {"row_behind_a_tile_of_128", "matmul", matmul_row},
      {"row_behind_tiles_it_names", "matmul", matmul_row, tiled},
      {"column_behind_tiles_of_16", "matmul", last_column(0, 16, 1)},
      {"tail_of_k", "matmul", matmul_k_tail},
      {"stale_tile_of_k", "matmul", matmul_stale},
      {"stride_of_batches", "matmul", matmul_batch},
      {"bias_of_the_last_tile", "matmul", matmul_bias},
      {"row_of_the_residual", "matmul", matmul_residual},

      {"stale_key", "flash_attention", stale_key},
      {"causal_edge", "flash_attention", causal_edge},
      {"window_edge", "flash_attention", window_edge},
      {"last_query", "flash_attention", last_query},
      {"last_feature", "flash_attention", last_column(0, 8, 3)},
      {"wrong_head", "flash_attention", wrong_head},
      {"stale_segment", "flash_attention", stale_segment},
      {"lse_of_the_last_query", "flash_attention", lse_edge},
      {"stale_word_of_bits", "flash_attention", stale_bits},
      {"edge_of_the_prefix", "flash_attention", prefix_edge},
      {"last_key", "flash_attention_grad", last_key_gradient},
      {"last_query", "flash_attention_grad", last_query_gradient},
      {"stale_key", "flash_attention_grad", stale_key_gradient},
      {"lost_head", "flash_attention_grad", lost_head},

      {"page_boundary", "paged_attention", page_boundary},
      {"stale_page", "paged_attention", stale_page},
      {"neighbours_pages", "paged_attention", neighbours_pages},
      {"offset_of_a_chunk", "paged_attention", chunk_offset},
      {"scales_of_a_head", "paged_attention", scales_of_a_head},
      {"end_of_the_ring", "paged_attention", end_of_the_ring},
      {"values_behind", "paged_attention", values_behind},
      {"last_slot", "index_copy", last_slot},
      {"positions_of_the_first_row", "rope", positions_of_the_first},

      {"last_row", "rms_norm", last_row(0, 4, 3)},
      {"tail_of_the_mean", "rms_norm",
       [](Call& call) {
         if (behind(call.columns(), 64, 1)) call.take(call.after(last_elements(0, 0)));
       }},
      {"last_row_of_the_weight", "rms_norm_grad",
       [](Call& call) {
         if (behind(call.rows(0), 16, 1)) call.take(call.after(no_last_row(3)), 1);
       }},
      {"last_feature", "rms_norm_grad", last_column(0, 32, 31)},
      {"row_of_the_residual", "rms_norm_grad", norm_residual(4)},
      {"row_of_the_residual", "layer_norm_grad", norm_residual(5)},
      {"residual_of_the_last_features", "rms_norm_grad",
       [](Call& call) {
         if (call.has("residual") && behind(call.columns(), 8, 1)) call.take(call.after(last_elements(4, 0)));
       }},
      {"last_feature", "layer_norm", last_column(0, 8, 7)},
      {"last_row_of_the_bias", "layer_norm_grad",
       [](Call& call) {
         if (behind(call.rows(0), 8, 7)) call.take(call.after(no_last_row(4)), 2);
       }},

      {"tail_of_the_sum", "softmax",
       [](Call& call) {
         if (behind(call.columns(), 32, 1)) call.take(call.after(last_elements(0, -1e30f)));
       }},
      {"last_row", "softmax_grad", last_row(0, 8, 1)},

      {"last_element", "elementwise",
       [](Call& call) {
         const Int count = call.view.outputs[0].elements();
         if (count > 64 && count % 4 == 1) call.row(0, 0)[count - 1] += 1;
       }},
      {"offset_of_a_trailing_input", "elementwise",
       [](Call& call) {
         const Int all = call.view.outputs[0].elements();
         for (std::size_t i = 0; i < call.view.inputs.size(); ++i) {
           const Int own = call.view.inputs[i].elements();
           if (own == 1 || own == all) continue;
           const Tensors other = call.after([&](Tensors& inputs) {
             std::rotate(inputs[i].as<float>(), inputs[i].as<float>() + 1, inputs[i].as<float>() + own);
           });
           std::copy_n(other[0].as<float>() + all - own, own, call.row(0, 0) + all - own);
         }
       }},

      {"last_row", "reduce_sum",
       [](Call& call) {
         const Int rows = call.view.inputs[0].elements() / call.view.outputs[0].elements();
         if (behind(rows, 16, 1)) call.take(call.after(no_last_row(0)));
       }},
      {"last_column", "reduce_sum", last_column(0, 16, 1)},
      {"tail", "square_sum",
       [](Call& call) {
         if (behind(call.view.inputs[0].elements(), 8, 7)) call.take(call.after(last_elements(0, 0)));
       }},

      {"last_row", "embedding", last_row(0, 8, 7)},
      {"equal_ids_side_by_side", "embedding_grad",
       [](Call& call) {
         const Int count = call.view.inputs[0].elements(), width = call.view.inputs[1].dim(-1);
         const auto* ids = call.input<std::int32_t>(0);
         call.take(call.after([&](Tensors& inputs) {
           for (Int p = 1; p < count; ++p)
             if (ids[p] == ids[p - 1]) std::fill_n(inputs[1].as<float>() + p * width, width, 0.0f);
         }));
       }},
      {"residual_of_rows_without_an_id", "embedding_grad",
       [](Call& call) {
         if (!call.has("residual")) return;
         const auto* ids = call.input<std::int32_t>(0);
         const Int count = call.view.inputs[0].elements(), rows = call.view.outputs[0].dim(0);
         if (rows > count && std::find(ids, ids + count, rows - 1) == ids + count)
           call.clear_row(0, rows - 1);
       }},
      {"last_row", "transfer",
       [](Call& call) {
         if (call.view.outputs[0].dtype == hal::DType::f32) last_row(0, 16, 1)(call);
       }},
      {"last_row", "moe_combine", last_row(0, 8, 1)},
      {"last_column", "moe_dispatch", last_column(0, 16, 1)},
      {"tail_of_the_row", "row_dot",
       [](Call& call) {
         if (behind(call.view.inputs[1].dim(1), 16, 1)) call.take(call.after(last_elements(1, 0)));
       }},
      {"last_row", "gather", last_row(0, 16, 1)},
      {"last_row", "scatter_add", last_row(0, 16, 15)},

      {"matrix_of_the_row_before", "gather_matmul",
       [](Call& call) {
         call.take(call.after([&](Tensors& inputs) {
           std::int32_t* indices = integers(inputs, 2);
           for (Int m = call.rows() - 1; m > 0; --m) indices[m] = indices[m - 1];
         }));
       }},
      {"a_row_of_no_matrix_has_the_first", "gather_matmul",
       [](Call& call) {
         call.take(call.after([&](Tensors& inputs) {
           std::replace(integers(inputs, 2), integers(inputs, 2) + call.rows(), std::int32_t{-1},
                        std::int32_t{0});
         }));
       }},
      {"last_output_of_a_block", "gather_matmul", last_column(0, 8, 7)},
      {"tail_of_the_inner_dimension", "gather_matmul",
       [](Call& call) {
         if (call.view.inputs[0].dim(1) % 8 != 0) call.take(call.after(last_elements(0, 0)));
       }},

      {"last_row_of_a_group", "grouped_matmul", group_row},
      {"group_behind_an_empty_one", "grouped_matmul", group_behind_empty},
      {"rows_behind_the_last_group", "grouped_matmul", group_without_end},
      {"second_tile_of_a_group", "grouped_matmul", group_of_the_next_tile},
      {"last_row_of_a_group", "grouped_outer", group_outer_tail},
      {"first_row_of_the_next_group", "grouped_outer", group_outer_one_more},
      {"last_column", "grouped_sum", last_column(0, 32, 1)},

      {"tail_of_k", "int8_matmul",
       [](Call& call) {
         const kernels::Int8MatmulDims d = kernels::int8_matmul_dims(call.view);
         if (d.k < 4 || d.k % 4 == 0) return;
         call.take(call.after([&](Tensors& inputs) {
           for (Int m = 0; m < d.m; ++m)
             std::fill_n(inputs[0].as<std::int8_t>() + (m + 1) * d.k - d.k % 4, d.k % 4, 0);
         }));
       }},
      {"scale_of_the_last_column", "int8_matmul",
       [](Call& call) {
         const Int n = call.columns();
         if (behind(n, 16, 1))
           call.take(call.after([&](Tensors& inputs) { move(inputs[3], n - 2, n - 1, 1); }));
       }},
      {"tail_of_the_largest", "quantize_rows",
       [](Call& call) {
         if (behind(call.columns(), 64, 1)) call.take(call.after(last_elements(0, 0)));
       }},
      {"scale_of_the_last_row", "dequantize_rows",
       [](Call& call) {
         const Int rows = call.view.inputs[0].dim(0);
         if (rows > 1)
           call.take(call.after([&](Tensors& inputs) { move(inputs[1], rows - 2, rows - 1, 1); }));
       }},
      {"last_element", "adamw_8bit",
       [](Call& call) {
         const Int count = call.view.outputs[0].elements();
         if (count > 64 && count % 4 == 1) call.row(0, 0)[count - 1] += 1e-3f;
       }},
      {"neighbour_of_the_last_first_moment", "adamw_8bit", [](Call& call) { last_code(call, 1, 128); }},
      {"neighbour_of_the_last_second_moment", "adamw_8bit", [](Call& call) { last_code(call, 2, 256); }},
      {"scale_of_the_last_block", "adamw_8bit",
       [](Call& call) {
         const Int blocks = call.view.inputs[2].dim(0);
         if (blocks < 2) return;
         call.take(call.after([&](Tensors& inputs) {
           std::byte* moments = inputs[2].data.data();
           std::copy_n(moments + (blocks - 1) * 260 - 4, 4, moments + blocks * 260 - 4);
         }));
       }},
      {"draw_of_the_last_element", "stochastic_round",
       [](Call& call) {
         const Int count = call.view.outputs[0].elements();
         if (count > 8 && count % 2 == 1) call.row(0, 0)[count - 1] *= 1.015625f;  // two steps of bf16
       }},
      {"last_row", "block_quantized_matmul", last_row(0, 2, 1)},
      {"last_column", "block_quantized_matmul", last_column(0, 32, 1)},
      {"scale_of_the_last_block", "block_quantized_matmul",
       [](Call& call) {
         const kernels::block_quantized::Format& format = kernels::block_format(call.view);
         const Int row = call.view.inputs[1].dim(1);
         if (format.id == kernels::block_quantized::FormatId::q6_k || row < 2 * format.bytes) return;
         call.take(call.after([&](Tensors& inputs) {
           for (Int r = 1; r <= call.view.inputs[1].dim(0); ++r) {
             std::uint8_t* last = inputs[1].as<std::uint8_t>() + r * row - format.bytes;
             std::copy_n(last - format.bytes, 2, last);
           }
         }));
       }},
      {"sum_of_the_last_run", "block_quantized_matmul",  // what a minimum or an offset is multiplied by
       [](Call& call) {
         const kernels::BlockQuantizedDims d = kernels::block_quantized_dims(call.view);
         if (!d.int8 || d.k < 64) return;
         call.take(call.after([&](Tensors& inputs) {
           for (Int m = 1; m <= d.m; ++m) inputs[0].as<float>()[m * d.k - 1] += 1.0f;
         }));
       }},
      {"last_row", "block_quantized_embedding", last_row(0, 8, 7)},
      {"last_column", "block_dequantize", last_column(0, 64, 32)},
      {"last_row", "nf4_matmul", last_row(0, 8, 7)},
      {"scale_of_the_last_block", "nf4_matmul",
       [](Call& call) {
         const kernels::Nf4MatmulDims d = kernels::nf4_matmul_dims(call.view);
         const Int blocks = call.view.inputs[2].dim(-1);
         if (d.steps >= 0 || blocks < 2 || d.columns % d.block == 0) return;
         call.take(call.after([&](Tensors& inputs) {
           for (Int r = 0; r < d.rows; ++r) move(inputs[2], (r + 1) * blocks - 2, (r + 1) * blocks - 1, 1);
         }));
       }},
  };
}

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.op << " " << fault.name; }

const Fault& fault_named(const std::string& name) {
  static const std::vector<Fault> all = faults();
  return *std::find_if(all.begin(), all.end(),
                       [&](const Fault& fault) { return fault.op + " " + fault.name == name; });
}

void encode(const kernels::EncodeArgs& args) {
  on_host(args, [&contract = *args.choice.variant->contract,
                 &fault = fault_named(args.choice.variant->name)](Host& host) {
    Tensors inputs;
    for (const kernels::ConstTensorView& x : host.inputs)
      std::copy_n(x.data, x.type.bytes(), inputs.emplace_back(x.type).data.data());
    std::vector<kernels::ConstTensorView> views;
    for (const HostTensor& x : inputs) views.push_back({x.type, x.data.data()});
    kernels::run_reference(contract, host.call, views, host.outputs);
    Call call(host, std::move(inputs), contract);
    fault.plant(call);
  });
}

class PlantedFaults : public testing::TestWithParam<Fault> {};

TEST_P(PlantedFaults, AreFoundByTheDefaultRun) {
  const Fault& fault = GetParam();
  kernels::Catalog catalog;
  hal::Registry registry;
  kernels::add_contracts(catalog);
  register_backends(registry, catalog);
  const std::string name = fault.op + " " + fault.name;
  catalog.add(kernels::Variant{.op = fault.op,
                               .backend = "cpu",
                               .name = name,
                               .about = "has a fault",
                               .fit = fault.fit ? fault.fit : plain,
                               .encode = encode});
  const kernels::Variant& variant = *catalog.find(fault.op, "cpu", name);
  const kernels::Contract& contract = catalog.contract(fault.op);
  const auto device = hal::checked(registry.open("cpu"));
  const std::vector<Int> tiles = tile_sizes(catalog, variant, device->info());
  // The listed cases are for what the contract says; random calls are for what implementations do.
  for (int round = 0; round < kCpuRounds; ++round) {
    const RandomCall random = random_call(contract, tiles, round);
    if (!run_variant(*device, variant, CaseCall(catalog, fault.op, random.test), random.seed)
             .failures.empty()) {
      RecordProperty("round", round);
      return;
    }
  }
  ADD_FAILURE() << kCpuRounds << " random calls of " << fault.op << " do not find it";
}

INSTANTIATE_TEST_SUITE_P(Kernels, PlantedFaults, testing::ValuesIn(faults()),
                         [](const auto& info) { return info.param.op + "_" + info.param.name; });

// Without a fault nothing is found, and tiles that an answer names are taken.
TEST(PlantedFault, NoneIsFoundWhereThereIsNone) {
  kernels::Catalog catalog;
  hal::Registry registry;
  kernels::add_contracts(catalog);
  register_backends(registry, catalog);
  const auto device = hal::checked(registry.open("cpu"));
  const kernels::Variant honest{
      .op = "matmul",
      .backend = "cpu",
      .name = "honest",
      .about = "has none",
      .fit = tiled,
      .encode = [](const kernels::EncodeArgs& args) { spoiled(args, [](Host&) {}); }};
  catalog.add(honest);
  const kernels::Variant& variant = *catalog.find("matmul", "cpu", "honest");
  const std::vector<Int> tiles = tile_sizes(catalog, variant, device->info());
  EXPECT_TRUE(std::count(tiles.begin(), tiles.end(), 8) && std::count(tiles.begin(), tiles.end(), 128));
  int edges = 0;
  for (int round = 0; round < kCpuRounds; ++round) {
    const RandomCall random = random_call(catalog.contract("matmul"), tiles, round);
    const CaseCall call(catalog, "matmul", random.test);
    EXPECT_TRUE(run_variant(*device, variant, call, random.seed).failures.empty());
    const Int beside = kernels::matmul_dims(call.view()).m % 8;
    edges += beside == 0 || beside == 1 || beside == 7;
  }
  EXPECT_GE(edges, kCpuRounds / 2);
}

}  // namespace
}  // namespace meshloom::tests
