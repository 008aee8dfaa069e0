// Faults of matmul and its relatives.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/block_quantized/block_quantized.h"
#include "kernels/grouped_matmul/grouped_matmul.h"
#include "kernels/int8_matmul/int8_matmul.h"
#include "kernels/matmul/matmul.h"
#include "kernels/nf4_matmul/nf4_matmul.h"
#include "tests/kernels/planted_faults.h"

namespace meshloom::tests::planted {
namespace {

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
// The last row of each of g products (m, n) gets the residual of the one before; input -1: there is none.
void row_of_the_residual(Call& call, int input, Int g, Int m, Int n) {
  if (input < 0 || !behind(m, 16, 1)) return;
  call.take(call.after([&](Tensors& inputs) {
    for (Int i = 0; i < g; ++i)
      move(inputs[static_cast<std::size_t>(input)], (i * m + m - 2) * n, (i * m + m - 1) * n, n);
  }));
}
void matmul_residual(Call& call) {
  const kernels::MatmulDims d = kernels::matmul_dims(call.view);
  row_of_the_residual(call, d.residual, d.g, d.m, d.n);
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

}  // namespace

std::vector<Fault> product_faults() {
  return {
      {"row_behind_a_tile_of_128", "matmul", matmul_row},
      {"row_behind_tiles_it_names", "matmul", matmul_row, tiled},
      {"column_behind_tiles_of_16", "matmul", last_column(0, 16, 1)},
      {"tail_of_k", "matmul", matmul_k_tail},
      {"stale_tile_of_k", "matmul", matmul_stale},
      {"stride_of_batches", "matmul", matmul_batch},
      {"bias_of_the_last_tile", "matmul", matmul_bias},
      {"row_of_the_residual", "matmul", matmul_residual},
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
      {"row_of_the_residual", "block_quantized_matmul",
       [](Call& call) {
         const kernels::BlockQuantizedDims d = kernels::block_quantized_dims(call.view);
         row_of_the_residual(call, d.residual, 1, d.m, d.n);
       }},
      {"row_of_the_residual", "nf4_matmul",
       [](Call& call) {
         const kernels::Nf4MatmulDims d = kernels::nf4_matmul_dims(call.view);
         row_of_the_residual(call, d.residual, 1, d.m, d.n);
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

}  // namespace meshloom::tests::planted
