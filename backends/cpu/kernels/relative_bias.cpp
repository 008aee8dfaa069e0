// Relative position bias: a head has one row of values by distance, and every query reads a different part of it. The
// gradient sums over the queries into such a row.
#include "kernels/relative_bias/relative_bias.h"

#include <algorithm>
#include <vector>

#include "backends/cpu/kernels/elementwise/elementwise_program.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "hal/math.h"

namespace meshloom::backends::cpu {
namespace {

using kernels::RelativeBiasDims;

constexpr std::int64_t kQueries = 32;  // of a head, per work item that copies
constexpr std::size_t kOwnWords = 8;   // of constants, before the program's

RelativeBiasDims read_dims(const KernelArgs& args) {
  ConstantReader constants(args);
  return {constants.integer(), constants.integer(), constants.integer(), constants.integer()};
}

// Calls f(n, row) for every distance; row -1 = no row of the table.
template <typename Function>
void each_row(const KernelArgs& args, const RelativeBiasDims& d, Function f) {
  const ElementwiseProgram program = decode(args.constants + kOwnWords);
  ElementwiseSlots slots(program);
  for (std::int64_t start = 0; start < d.distances(); start += program.block()) {
    const std::int64_t count = std::min(program.block(), d.distances() - start),
                       padded = hal::round_up(count, 64);
    for (std::int64_t k = 0; k < padded; ++k) slots.own(0)[k] = static_cast<float>(start + k - (d.t - 1));
    const float* rows = slots.run(count);
    for (std::int64_t k = 0; k < count; ++k)
      f(start + k,
        rows[k] >= 0 && rows[k] < static_cast<float>(d.rows) ? static_cast<std::int64_t>(rows[k]) : -1);
  }
}

// Bindings table (rows, h), values (h, distances); an item is a head.
void run_values(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const RelativeBiasDims d = read_dims(args);
  const auto* table = args.at<const float>(0);
  each_row(args, d, [&](std::int64_t n, std::int64_t row) {
    for (std::int64_t h = begin; h < end; ++h)
      args.at(1)[h * d.distances() + n] = row < 0 ? 0.0f : table[row * d.h + h];
  });
}

// Bindings values, bias (h, s, t); an item is kQueries queries of a head.
void run_spread(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const RelativeBiasDims d = read_dims(args);
  const std::int64_t blocks = hal::ceil_div(d.s, kQueries);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t h = item / blocks, first = item % blocks * kQueries;
    for (std::int64_t i = first; i < std::min(d.s, first + kQueries); ++i)
      std::copy_n(args.at<const float>(0) + h * d.distances() + d.s - 1 - i, d.t,
                  args.at(1) + (h * d.s + i) * d.t);
  }
}

// Bindings dy (h, s, t), sums (blocks, h, distances); an item is a head of a block of `size` queries.
void run_sums(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const RelativeBiasDims d = read_dims(args);
  const RowBlocks blocks = row_blocks(d.s, 16, 32);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t h = item % d.h, first = item / d.h * blocks.size;
    float* sums = args.at(1) + item * d.distances();
    std::fill_n(sums, d.distances(), 0.0f);
    for (std::int64_t i = first; i < std::min(d.s, first + blocks.size); ++i) {
      const float* dy = args.at<const float>(0) + (h * d.s + i) * d.t;
      float* into = sums + d.s - 1 - i;
      for (std::int64_t j = 0; j < d.t; ++j) into[j] += dy[j];
    }
  }
}

// Bindings sums, dtable (rows, h); an item is a head.
void run_grad(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const RelativeBiasDims d = read_dims(args);
  const std::int64_t blocks = row_blocks(d.s, 16, 32).count;
  for (std::int64_t h = begin; h < end; ++h) {
    std::vector<double> totals(static_cast<std::size_t>(d.rows), 0.0);
    each_row(args, d, [&](std::int64_t n, std::int64_t row) {
      if (row < 0) return;
      for (std::int64_t c = 0; c < blocks; ++c)
        totals[static_cast<std::size_t>(row)] += args.at<const float>(0)[(c * d.h + h) * d.distances() + n];
    });
    for (std::int64_t row = 0; row < d.rows; ++row)
      args.at(1)[row * d.h + h] = static_cast<float>(totals[static_cast<std::size_t>(row)]);
  }
}

template <bool kGrad>
kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo&) {
  const RelativeBiasDims d = kernels::relative_bias_dims(call);
  std::string reason = refusal(call);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  expression_words(call.attrs.text("row"), 1, kOwnWords, reason);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  return kernels::Fit::yes({}, (kGrad ? row_blocks(d.s, 16, 32).count : 1) * d.h * d.distances() * 4);
}

Constants constants_of(const kernels::EncodeArgs& args, const RelativeBiasDims& d) {
  std::string reason;
  const std::vector<hal::Word> expression =
      expression_words(args.call.attrs.text("row"), 1, kOwnWords, reason);
  if (!reason.empty()) throw Error(args.label, "the call must fit the variant", reason);
  Constants constants;
  constants.integer(d.rows).integer(d.h).integer(d.s).integer(d.t);
  for (const hal::Word word : expression) constants.word(word.u);
  return constants;
}

void encode_bias(const kernels::EncodeArgs& args) {
  const RelativeBiasDims d = kernels::relative_bias_dims(args.call);
  const Constants constants = constants_of(args, d);
  record(args, "relative_bias_values", d.h, {reads(args.inputs[0]), writes(args.workspace)}, constants);
  args.commands.barrier();
  record(args, "relative_bias_spread", d.h * hal::ceil_div(d.s, kQueries),
         {reads(args.workspace), writes(args.outputs[0])}, constants);
}

void encode_grad(const kernels::EncodeArgs& args) {
  const RelativeBiasDims d = kernels::relative_bias_dims(args.call);
  const Constants constants = constants_of(args, d);
  record(args, "relative_bias_sums", row_blocks(d.s, 16, 32).count * d.h,
         {reads(args.inputs[0]), writes(args.workspace)}, constants);
  args.commands.barrier();
  record(args, "relative_bias_grad", d.h, {reads(args.workspace), writes(args.outputs[0])}, constants);
}

}  // namespace

Ops relative_bias_ops() {
  return {{{"relative_bias_values", run_values},
           {"relative_bias_spread", run_spread},
           {"relative_bias_sums", run_sums},
           {"relative_bias_grad", run_grad}},
          {{"relative_bias",
            {simd_variant("one row of values by distance per head, of which every query copies a part",
                          fit<false>, encode_bias)}},
           {"relative_bias_grad",
            {simd_variant("summed by distance over blocks of queries, then by row of the table", fit<true>,
                          encode_grad)}}}};
}

}  // namespace meshloom::backends::cpu
