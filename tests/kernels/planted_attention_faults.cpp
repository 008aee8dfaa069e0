// Faults of attention, its pages, and what stands in front of it.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/flash_attention/flash_attention.h"
#include "kernels/index_copy/index_copy.h"
#include "kernels/paged_attention/paged_attention.h"
#include "tests/kernels/planted_faults.h"

namespace meshloom::tests::planted {
namespace {

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

// --- pages ---
using Paged = kernels::PagedAttentionDims;
Paged paged_dims(const Call& call) { return kernels::paged_attention_dims(call.view); }
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
// Every batch row is rotated by the positions of the first.
void positions_of_the_first(Call& call) {
  if (!call.has("positions")) return;
  const Int batch = call.view.inputs[1].dim(0), s = call.view.inputs[1].dim(1);
  call.take(call.after([&](Tensors& inputs) {
    for (Int b = 1; b < batch; ++b) std::copy_n(integers(inputs, 1), s, integers(inputs, 1) + b * s);
  }));
}

}  // namespace

std::vector<Fault> attention_faults() {
  return {
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
  };
}

}  // namespace meshloom::tests::planted
