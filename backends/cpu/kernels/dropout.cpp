// Dropout: random words are generated for blocks of elements.
#include "kernels/dropout/dropout.h"

#include <algorithm>

#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/simd/philox_words.h"
#include "hal/math.h"

namespace meshloom::backends::cpu {
namespace {

constexpr std::int64_t kItem = 4096;  // elements per work item
constexpr std::size_t kBlocks = kPhiloxBatch;

// The random words of the step from word `first` on, in order.
class Words {
 public:
  Words(std::uint32_t seed, std::uint32_t step, std::uint32_t k0, std::uint32_t k1, std::uint64_t first)
      : seed_(seed), step_(step), k0_(k0), k1_(k1), block_(first / 4), at_(first % 4) {
    draw();
  }
  // The next words that are already generated, at most max_count.
  std::span<const std::uint32_t> ready(std::size_t max_count) {
    if (at_ == 4 * kBlocks) {
      block_ += kBlocks;
      at_ = 0;
      draw();
    }
    const std::size_t count = std::min(max_count, 4 * kBlocks - at_);
    const std::span<const std::uint32_t> words(words_ + at_, count);
    at_ += count;
    return words;
  }

 private:
  void draw() {
    std::uint32_t low[kBlocks], high[kBlocks], drawn[4 * kBlocks];
    for (std::size_t i = 0; i < kBlocks; ++i) {
      low[i] = static_cast<std::uint32_t>(block_ + i);
      high[i] = static_cast<std::uint32_t>((block_ + i) >> 32);
    }
    philox_batch(kBlocks, low, high, step_, seed_, k0_, k1_, drawn);
    for (std::size_t i = 0; i < kBlocks; ++i)
      for (std::size_t j = 0; j < 4; ++j) words_[4 * i + j] = drawn[j * kBlocks + i];
  }

  std::uint32_t seed_, step_, k0_, k1_;
  std::uint64_t block_;
  std::size_t at_;
  std::uint32_t words_[4 * kBlocks];
};

// Bindings x, rng_state, y; an item is kItem elements.
void run_dropout(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  ConstantReader constants(args);
  const std::int64_t count = constants.integer(), share = constants.integer(),
                     row_words = constants.integer(), before = constants.integer(),
                     rest = constants.integer(), run = constants.integer(), stride = constants.integer();
  const std::uint32_t k0 = constants.word(), k1 = constants.word(), threshold = constants.word();
  const float scale = constants.number();
  const hal::DType dtype = constants.dtype();
  const auto* rng_state = args.at<const std::uint32_t>(1);
  const std::uint64_t first = std::uint64_t{rng_state[2]} * static_cast<std::uint64_t>(row_words) +
                              static_cast<std::uint64_t>(before);
  RowsIn from(args, 0, dtype);
  RowsOut to(args, 2, dtype);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t start = item * kItem, n = std::min(kItem, count - start);
    const float* x = from.row(start, n);
    float* y = to.row(start, n);
    for (std::int64_t i = 0; i < n;) {  // a run
      const std::int64_t in_run = (start + i) % run, end = std::min(n, i + run - in_run);
      std::int64_t place = rest + (start + i) / run * stride + in_run;
      Words words(rng_state[0], rng_state[1], k0, k1, first + static_cast<std::uint64_t>(place / share));
      if (share == 1) {
        while (i < end) {
          const std::span<const std::uint32_t> ready = words.ready(static_cast<std::size_t>(end - i));
          for (std::size_t j = 0; j < ready.size(); ++j)
            y[i + static_cast<std::int64_t>(j)] =
                ready[j] < threshold ? 0.0f : x[i + static_cast<std::int64_t>(j)] * scale;
          i += static_cast<std::int64_t>(ready.size());
        }
      } else {
        while (i < end) {
          const std::int64_t next = std::min(end, i + share - place % share);
          place += next - i;
          const bool drops = words.ready(1)[0] < threshold;
          for (; i < next; ++i) y[i] = drops ? 0.0f : x[i] * scale;
        }
      }
    }
    to.done();
  }
}

void encode(const kernels::EncodeArgs& args) {
  const kernels::DropoutDims dims = kernels::dropout_dims(args.call);
  record(args, "dropout", hal::ceil_div(dims.count, kItem),
         {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])},
         Constants()
             .integer(dims.count)
             .integer(dims.share)
             .integer(dims.row_words)
             .integer(dims.before)
             .integer(dims.rest)
             .integer(dims.run)
             .integer(dims.stride)
             .word(dims.k0)
             .word(dims.k1)
             .word(dims.threshold)
             .real(dims.scale)
             .dtype(args.call.inputs[0].dtype));
}

}  // namespace

Ops dropout_ops() {
  return {{{"dropout", run_dropout}},
          {{"dropout",
            {low_precision_variant("blocks in parallel, random words generated in vectors", fit_floats,
                                   encode)}}}};
}

}  // namespace meshloom::backends::cpu
