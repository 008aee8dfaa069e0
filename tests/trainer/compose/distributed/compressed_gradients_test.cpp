// Gradients that move between ranks in fewer bits, with error feedback.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "kernels/elementwise/elementwise.h"
#include "kernels/program/verify.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "tests/trainer/compose/lock_step.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/passes/distributed/compressed_gradients.h"
#include "trainer/compose/passes/distributed/partition.h"
#include "trainer/compose/passes/update.h"

namespace meshloom::tests {
namespace {

using kernels::DType;
using kernels::HostTensor;
using kernels::Tensor;
using trainer::Topology;

constexpr std::int64_t kRows = 12;
constexpr char kParameter[] = "weight";

// By row of a micro-batch, and element.
using Rows = std::function<float(std::int64_t row, std::int64_t element)>;

// Steps of p - g, where g, the gradient of p, is the sum of the rows, over the ranks of a mesh.
class Descent {
 public:
  Descent(Mesh mesh, std::int64_t n, DType dtype, const kernels::Catalog& interpreting = catalog())
      : mesh_(std::move(mesh)),
        n_(n),
        interpreting_(interpreting),
        parameter_(static_cast<std::size_t>(n), 0.0F) {
    kernels::Program program;
    program.name = "train";
    kernels::Builder builder(catalog(), program);
    const Tensor p = builder.input(kParameter, {DType::f32, {n}}, kernels::Role::parameter);
    const Tensor rows = builder.input("rows", {DType::f32, {kRows, n}}, kernels::Role::input, {"batch", ""});
    builder.phase = kernels::Phase::backward;
    const Tensor g = kernels::reduce_sum(rows, 1);
    builder.name(g, std::string("grad/") + kParameter);
    builder.role(g, kernels::Role::gradient);
    builder.phase = kernels::Phase::update;
    const Tensor squares = kernels::square_sum(g);
    builder.name(squares, "squares");
    builder.output(squares);
    const auto [x, y] = kernels::inputs<2>();
    trainer::carry(builder, p, kernels::elementwise({p, g}, x - y));
    for (int rank = 0; rank < Topology(mesh_).ranks(); ++rank) {
      trainer::Partitioned one =
          trainer::partition(program, catalog(), Topology(mesh_, rank), "gather", dtype);
      kernels::verify(one.program, catalog(), "partition");
      partitioned_.push_back(std::move(one));
    }
    states_.resize(partitioned_.size());
  }

  void step(const Rows& rows) {
    HostTensor all({DType::f32, {kRows, n_}}), whole({DType::f32, {n_}});
    for (std::int64_t row = 0; row < kRows; ++row)
      for (std::int64_t i = 0; i < n_; ++i) all.as<float>()[row * n_ + i] = rows(row, i);
    std::copy(parameter_.begin(), parameter_.end(), whole.as<float>());
    std::vector<Rank> ranks;
    for (std::size_t r = 0; r < partitioned_.size(); ++r) {
      const trainer::Partitioned& one = partitioned_[r];
      Values values;
      for (const kernels::ValueId id : one.program.inputs) {
        const kernels::Value& value = one.program.value(id);
        if (value.role == kernels::Role::optimizer) {
          const auto found = states_[r].find(value.name);
          values.emplace(id, found == states_[r].end() ? HostTensor(value.type) : found->second);
        } else {
          const HostTensor& source = value.name == "rows" ? all : whole;
          values.emplace(id, part_of(source, layout(value.name, source.type, r), value.type));
        }
      }
      ranks.emplace_back(interpreting_, one, std::move(values));
    }
    ASSERT_TRUE(run_in_lock_step(ranks, mesh_));
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const kernels::Program& program = ranks[r].program();
      for (const kernels::ValueId id : program.outputs)
        if (program.value(id).name == "squares") squares = ranks[r].value(id).as<float>()[0];
      for (const kernels::Donation& donation : program.donations) {
        const std::string& name = program.value(donation.input).name;
        const HostTensor& next = ranks[r].value(donation.output);
        if (name != kParameter) {
          states_[r].insert_or_assign(name, next);
          continue;
        }
        trainer::for_runs(layout(name, whole.type, r),
                          [&](std::int64_t to, std::int64_t from, std::int64_t count) {
                            std::copy_n(next.as<float>() + from, count, parameter_.begin() + to);
                          });
      }
    }
  }

  void forget() {
    for (auto& states : states_) states.clear();
  }
  void restart() { std::fill(parameter_.begin(), parameter_.end(), 0.0F); }
  const std::vector<float>& parameter() const { return parameter_; }
  // What rounding lost, by rank and name.
  const std::vector<std::map<std::string, HostTensor>>& states() const { return states_; }
  const std::vector<trainer::Partitioned>& partitioned() const { return partitioned_; }
  float squares = 0;

  // The bytes that a rank sends to add up gradients.
  std::int64_t sent(std::size_t rank) const {
    const kernels::Program& program = partitioned_[rank].program;
    const Topology mesh(mesh_, static_cast<int>(rank));
    std::int64_t bytes = 0;
    for (const kernels::Call& call : program.calls) {
      if (call.op != "all_to_all") continue;
      const kernels::CallTypes types(program, call);
      const trainer::AxisSet axes = trainer::axes_from_string(call.attrs.text("axes"));
      for (const auto& move : kernels::collective::expanded(
               catalog().contract(call.op).moves(types.view(call)), mesh.size(axes), mesh.place(axes)))
        if (move.out && move.peer != mesh.place(axes)) bytes += move.bytes;
    }
    return bytes;
  }

 private:
  trainer::Layout layout(const std::string& name, const kernels::TensorType& type, std::size_t rank) const {
    const auto found = partitioned_[rank].divided.find(name);
    return found == partitioned_[rank].divided.end()
               ? trainer::whole_layout(type)
               : trainer::layout_of(found->second, Topology(mesh_), static_cast<int>(rank));
  }

  Mesh mesh_;
  std::int64_t n_;
  const kernels::Catalog& interpreting_;
  std::vector<float> parameter_;
  std::vector<trainer::Partitioned> partitioned_;
  std::vector<std::map<std::string, HostTensor>> states_;
};

// Meshes, and sizes that they divide into blocks, evenly, and not at all.
const std::vector<std::pair<Mesh, std::int64_t>>& cases() {
  static const std::vector<std::pair<Mesh, std::int64_t>> list{{{{"data", 2}}, 1024},
                                                               {{{"data", 3}}, 1031},
                                                               {{{"fsdp", 4}}, 2048},
                                                               {{{"fsdp", 3}}, 1600},
                                                               {{{"data", 2}, {"fsdp", 2}}, 2055},
                                                               {{{"data", 2}, {"expert", 2}}, 1200},
                                                               {{{"data", 2}, {"model", 2}}, 1026}};
  return list;
}

// The same numbers in every step, and a little noise.
float number(std::int64_t step, std::int64_t row, std::int64_t i) {
  const auto wave = [](double x) { return std::sin(x) * std::exp(std::sin(3.7 * x)); };
  return static_cast<float>(wave(0.7 * static_cast<double>(i) + 1.3 * static_cast<double>(row)) +
                            0.002 * wave(5.1 * static_cast<double>(i + 31 * step + 17 * row)));
}

// How far the mean of what was added up in `steps` steps is from the true mean, at most.
double mean_error(Descent& descent, int steps, bool feedback) {
  std::vector<double> sums(descent.parameter().size(), 0);
  for (int step = 0; step < steps; ++step) {
    if (!feedback) descent.forget();
    descent.step([&](std::int64_t row, std::int64_t i) { return number(step, row, i); });
    for (std::size_t i = 0; i < sums.size(); ++i)
      for (std::int64_t row = 0; row < kRows; ++row)
        sums[i] -= number(step, row, static_cast<std::int64_t>(i));
  }
  double most = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double apart = std::abs(descent.parameter()[i] - sums[i]) / steps;
    most = std::isfinite(apart) ? std::max(most, apart) : HUGE_VAL;
  }
  return most;
}

constexpr double kLargest = 2.8 * kRows;  // of a sum

// The most that rounding loses of a sum in one step: at every level half of the last place of every summand, or of its block's.
double one_step(const Mesh& mesh, DType dtype) {
  return kLargest * (dtype == DType::i8 ? 0.51 / 126 : 0x1p-9) * static_cast<double>(mesh.size());
}

// Of many steps the mean is the true one, because what a step loses the next one adds (with the rounding of 32 bits beside it).
TEST(CompressedGradients, TheMeanOfManyStepsIsThatOfTheGradients) {
  constexpr int kSteps = 48;
  for (const auto& [mesh, n] : cases())
    for (const DType dtype : {DType::bf16, DType::i8}) {
      SCOPED_TRACE(Topology(mesh).text() + ", " + std::to_string(n) + ", " +
                   std::string(hal::to_string(dtype)));
      Descent with(mesh, n, dtype), without(mesh, n, dtype);
      const double bound = one_step(mesh, dtype) / kSteps + kLargest * kSteps * 0x1p-23;
      EXPECT_LE(mean_error(with, kSteps, true), bound);
      EXPECT_GT(mean_error(without, kSteps, false), 2 * bound);  // the planted fault
    }
}

TEST(CompressedGradients, ADroppedScaleIsSeen) {
  kernels::Catalog planted;
  for (const kernels::Contract* one : catalog().contracts()) {
    kernels::Contract contract = *one;
    if (contract.name == "dequantize_rows")
      contract.reference = [](const kernels::CallView& call, std::span<const kernels::ConstTensorView> inputs,
                              std::span<const kernels::TensorView> outputs) {
        for (std::int64_t i = 0; i < call.inputs[0].elements(); ++i)
          outputs[0].as<float>()[i] = static_cast<float>(inputs[0].as<std::int8_t>()[i]) / 127;
      };
    planted.add(std::move(contract));
  }
  const Mesh mesh{{"data", 2}};
  Descent right(mesh, 1024, DType::i8), wrong(mesh, 1024, DType::i8, planted);
  EXPECT_LE(mean_error(right, 4, true), one_step(mesh, DType::i8));
  EXPECT_GT(mean_error(wrong, 4, true), one_step(mesh, DType::i8));
}

// f32 sends what it always did; others send less, and nothing of a vector too short to share a scale.
TEST(CompressedGradients, BytesAreThoseOfTheDtype) {
  const Mesh four{{"data", 4}};
  EXPECT_EQ(Descent(four, 4096, DType::f32).sent(1), 3 * 1024 * 4);
  EXPECT_EQ(Descent(four, 4096, DType::bf16).sent(1), 3 * 1024 * 2);
  EXPECT_EQ(Descent(four, 4096, DType::i8).sent(1), 3 * (1024 + 4 * 4));
  EXPECT_EQ(Descent(four, 1201, DType::bf16).sent(0), 3 * 301 * 2);
  EXPECT_EQ(Descent(four, 1201, DType::i8).sent(0), 3 * (512 + 2 * 4));
  EXPECT_EQ(Descent(four, 1020, DType::i8).sent(1), 3 * 255 * 4);
  // Both levels: over fsdp, then over data.
  const Mesh levels{{"data", 2}, {"fsdp", 2}};
  EXPECT_EQ(Descent(levels, 4096, DType::i8).sent(3), (2048 + 8 * 4) + (1024 + 4 * 4));
  const std::vector<trainer::Partitioned> short_ones = Descent(four, 1020, DType::i8).partitioned();
  for (const kernels::ValueId id : short_ones[0].program.inputs)
    EXPECT_NE(short_ones[0].program.value(id).role, kernels::Role::optimizer);
}

// Every rank has a part of its own of what is stored of all.
TEST(CompressedGradients, RanksHaveErrorsOfTheirOwn) {
  for (const auto& [mesh, n] : cases()) {
    SCOPED_TRACE(Topology(mesh).text());
    const Descent descent(mesh, n, DType::i8);
    std::map<std::string, std::vector<int>> seen;
    for (std::size_t r = 0; r < descent.partitioned().size(); ++r) {
      const trainer::Partitioned& one = descent.partitioned()[r];
      for (const kernels::ValueId id : one.program.inputs) {
        const kernels::Value& value = one.program.value(id);
        if (value.role != kernels::Role::optimizer) continue;
        EXPECT_TRUE(value.name.starts_with(trainer::kGradientError)) << value.name;
        const trainer::Division& division = one.divided.at(value.name);
        const trainer::Layout layout = trainer::layout_of(division, Topology(mesh), static_cast<int>(r));
        EXPECT_EQ(layout.range.count, value.type.elements());
        EXPECT_TRUE(layout.first);
        std::vector<int>& of_name = seen[value.name];
        of_name.resize(static_cast<std::size_t>(division.whole.elements()));
        for (std::int64_t i = 0; i < layout.range.count; ++i)
          ++of_name.at(static_cast<std::size_t>(layout.range.first + i));
      }
    }
    const bool levels = Topology(mesh).size(trainer::AxisName::fsdp) > 1 && mesh.size() > 1;
    EXPECT_EQ(seen.size(), levels ? 2U : 1U);
    for (const auto& [name, counts] : seen)
      for (const int count : counts) ASSERT_EQ(count, 1) << name;
  }
}

// What is not finite stays so, in the parameter and in the norm, and is not carried over.
TEST(CompressedGradients, WhatIsNotFiniteIsSeenOnce) {
  for (const auto& [mesh, n] : cases())
    for (const DType dtype : {DType::bf16, DType::i8})
      for (const float bad :
           {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        SCOPED_TRACE(Topology(mesh).text() + ", " + std::string(hal::to_string(dtype)));
        Descent descent(mesh, n, dtype);
        const std::int64_t at = n - 1;
        const auto rows = [&](std::int64_t row, std::int64_t i) { return number(0, row, i); };
        descent.step([&](std::int64_t row, std::int64_t i) {
          return row == kRows - 1 && i == at ? bad : rows(row, i);
        });
        EXPECT_FALSE(std::isfinite(descent.squares));
        EXPECT_FALSE(std::isfinite(descent.parameter()[static_cast<std::size_t>(at)]));
        EXPECT_TRUE(std::isfinite(descent.parameter()[0]));
        for (const auto& states : descent.states())
          for (const auto& [name, state] : states)
            for (std::int64_t i = 0; i < state.type.elements(); ++i)
              ASSERT_TRUE(std::isfinite(state.as<float>()[i])) << name;
        descent.restart();
        descent.step(rows);
        EXPECT_TRUE(std::isfinite(descent.squares));
      }
}

}  // namespace
}  // namespace meshloom::tests
