// Variants that promise row_exact: a row of the result has the same bits in any number of rows, by each of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/program/call_text.h"
#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::HostTensor;

// A call whose inputs `by_row` have a row for each row of the result.
struct RowCall {
  std::string op;
  kernels::Case test;
  std::vector<std::size_t> by_row;
};

HostTensor random(const kernels::TensorType& type, std::uint64_t seed) {
  HostTensor wide(kernels::widened(type)), result(type);
  if (type.dtype == DType::u8) {  // codes
    kernels::Rng rng(seed);
    for (std::byte& byte : result.data) byte = static_cast<std::byte>(rng.integer(0, 255));
    return result;
  }
  if (type.dtype == DType::i32) {  // indices
    kernels::fill_integers({type, result.data.data()}, seed, -1, 5);
    return result;
  }
  kernels::fill_uniform({wide.type, wide.data.data()}, seed, -1, 1);
  kernels::narrow(wide, {result.type, result.data.data()});
  return result;
}

DType dtype_of(kernels::Rng& rng, const std::vector<DType>& dtypes) {
  return dtypes[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(dtypes.size()) - 1))];
}

HostTensor rows_of(const HostTensor& all, std::int64_t first, std::int64_t count) {
  kernels::TensorType type = all.type;
  const std::int64_t row = type.bytes() / type.dim(0);
  type.shape[0] = count;
  HostTensor part(type);
  std::memcpy(part.data.data(), all.data.data() + first * row, static_cast<std::size_t>(count * row));
  return part;
}

class RowExact : public testing::Test {
 protected:
  void SetUp() override {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    device_ = hal::checked(registry_.open("cpu"));
  }

  std::vector<const kernels::Variant*> promised(const std::string& op) const {
    std::vector<const kernels::Variant*> all;
    for (const kernels::Variant* variant : catalog_.variants(op, device_->info().backend))
      if (variant->row_exact) all.push_back(variant);
    return all;
  }

  // Whether all rows together, cut in two and one by one give the same bytes by every variant that fits; counts the runs.
  bool holds(const RowCall& row_call, const std::vector<const kernels::Variant*>& variants,
             std::uint64_t seed) {
    std::vector<HostTensor> inputs;
    for (std::size_t i = 0; i < row_call.test.inputs.size(); ++i)
      inputs.push_back(random(row_call.test.inputs[i], seed + i));
    return holds(row_call, variants, std::move(inputs));
  }

  bool holds(const RowCall& row_call, const std::vector<const kernels::Variant*>& variants,
             std::vector<HostTensor> inputs) {
    const std::int64_t rows = row_call.test.inputs[0].dim(0), cut = rows / 3;
    std::vector<std::byte> expected;
    for (const kernels::Variant* variant : variants)
      for (const std::vector<std::int64_t>& starts :
           {std::vector<std::int64_t>{0}, std::vector<std::int64_t>{0, cut}, every_row(rows)}) {
        std::vector<std::byte> found;
        for (std::size_t i = 0; i < starts.size(); ++i) {
          const std::int64_t end = i + 1 < starts.size() ? starts[i + 1] : rows;
          if (end == starts[i]) continue;
          kernels::Case test = row_call.test;
          std::vector<HostTensor> part = inputs;
          for (const std::size_t input : row_call.by_row) {
            part[input] = rows_of(inputs[input], starts[i], end - starts[i]);
            test.inputs[input] = part[input].type;
          }
          const CaseCall call(catalog_, row_call.op, test);
          if (!variant->answer(call.view(), device_->info()).ok) {
            found.clear();
            break;
          }
          const std::vector<std::byte> bytes = first_output(*device_, *variant, call, part);
          found.insert(found.end(), bytes.begin(), bytes.end());
          ++runs_;
        }
        if (found.empty()) continue;
        if (expected.empty()) expected = found;
        if (found != expected) return false;
      }
    return true;
  }

  static std::vector<std::int64_t> every_row(std::int64_t rows) {
    std::vector<std::int64_t> starts;
    for (std::int64_t i = 0; i < rows; ++i) starts.push_back(i);
    return starts;
  }

  RowCall matmul(kernels::Rng& rng) const {
    const DType dtype = dtype_of(rng, {DType::f32, DType::bf16, DType::f16});
    const std::int64_t m = rng.integer(1, 40), n = rng.extent(120), k = rng.extent(900);
    const bool trans_b = rng.flip(0.7);
    RowCall call{"matmul",
                 {"", {{dtype, {m, k}}, {dtype, trans_b ? kernels::Shape{n, k} : kernels::Shape{k, n}}}, {}},
                 {0}};
    if (trans_b) call.test.attrs.set("trans_b", true);
    if (rng.flip(0.3)) {
      call.test.attrs.set("bias", true);
      call.test.inputs.push_back({DType::f32, {n}});
    }
    if (rng.flip(0.3)) {
      call.test.attrs.set("residual", true);
      call.by_row.push_back(call.test.inputs.size());
      call.test.inputs.push_back({dtype, {m, n}});
    }
    return call;
  }

  static RowCall norm_grad(const std::string& op, DType dtype, std::int64_t m, std::int64_t n,
                           bool residual) {
    const kernels::TensorType x{dtype, {m, n}}, weight{DType::f32, {n}}, row{DType::f32, {m}};
    RowCall call{op, {"", {x, weight, row, x}, {}}, {0, 2, 3}};
    if (op == "layer_norm_grad") {
      call.test.inputs.insert(call.test.inputs.begin() + 2, row);
      call.by_row.push_back(4);
    }
    if (!residual) return call;
    call.by_row.push_back(call.test.inputs.size());
    call.test.inputs.push_back(x);
    call.test.attrs.set("residual", true);
    return call;
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
  std::unique_ptr<hal::Device> device_;
  int runs_ = 0;
};

TEST_F(RowExact, ProductsKeepTheBitsOfARow) {
  EXPECT_EQ(promised("matmul").size(), 2u);
  const int rounds = fuzz_rounds(60);
  for (int i = fuzz_from(); i < fuzz_from() + rounds; ++i) {
    kernels::Rng rng(static_cast<std::uint64_t>(i) + 31);
    const RowCall call = matmul(rng);
    ASSERT_TRUE(holds(call, promised("matmul"), static_cast<std::uint64_t>(i)))
        << i << ": " << kernels::inputs_text(call.test.inputs, call.test.attrs);
  }
  EXPECT_GT(runs_, rounds);
}

TEST_F(RowExact, ProductsOfOtherVariantsDoNot) {
  bool differs = false;
  const std::vector<const kernels::Variant*> mixed{catalog_.find("matmul", "cpu", "packed"),
                                                   catalog_.find("matmul", "cpu", "skinny")};
  for (int i = 0; i < 20 && !differs; ++i) {
    kernels::Rng rng(static_cast<std::uint64_t>(i));
    differs = !holds(matmul(rng), mixed, static_cast<std::uint64_t>(i));
  }
  EXPECT_TRUE(differs);
}

TEST_F(RowExact, ProductsWithAMatrixPerRowKeepTheBitsOfARow) {
  for (int i = 0; i < fuzz_rounds(30); ++i) {
    kernels::Rng rng(static_cast<std::uint64_t>(i));
    const std::int64_t m = rng.integer(1, 40), n = rng.extent(150), k = rng.extent(300);
    const DType dtype = dtype_of(rng, {DType::f32, DType::bf16, DType::f16});
    RowCall call{"gather_matmul",
                 {"",
                  {{dtype, {m, k}},
                   {dtype_of(rng, {DType::f32, DType::bf16}), {rng.integer(1, 5), n, k}},
                   {DType::i32, {m}}},
                  {}},
                 {0, 2}};
    if (rng.flip())
      call.test.attrs.set("trans_b", true);
    else
      std::swap(call.test.inputs[1].shape[1], call.test.inputs[1].shape[2]);
    if (rng.flip()) {
      call.test.attrs.set("residual", true);
      call.by_row.push_back(3);
      call.test.inputs.push_back({dtype, {m, n}});
    }
    ASSERT_FALSE(promised("gather_matmul").empty());
    ASSERT_TRUE(holds(call, promised("gather_matmul"), static_cast<std::uint64_t>(i))) << i;
  }
}

TEST_F(RowExact, NormsKeepTheBitsOfARow) {
  for (const std::string op : {"rms_norm", "layer_norm"})
    for (int i = 0; i < fuzz_rounds(20); ++i) {
      kernels::Rng rng(static_cast<std::uint64_t>(i));
      const std::int64_t m = rng.integer(1, 40), n = rng.extent(700);
      const DType dtype = dtype_of(rng, {DType::f32, DType::bf16});
      RowCall call{op, {"", {{dtype, {m, n}}, {DType::f32, {n}}}, {{"eps", 1e-5}}}, {0}};
      if (op == "layer_norm") call.test.inputs.push_back({DType::f32, {n}});
      ASSERT_FALSE(promised(op).empty());
      ASSERT_TRUE(holds(call, promised(op), static_cast<std::uint64_t>(i))) << op << ", " << i;
    }
}

TEST_F(RowExact, GradientsOfNormsKeepTheBitsOfARow) {
  for (const std::string op : {"rms_norm_grad", "layer_norm_grad"})
    for (int i = 0; i < fuzz_rounds(20); ++i) {
      kernels::Rng rng(static_cast<std::uint64_t>(i));
      const DType dtype = dtype_of(rng, {DType::f32, DType::bf16});
      const RowCall call = norm_grad(op, dtype, rng.integer(1, 40), rng.extent(700), rng.flip());
      ASSERT_FALSE(promised(op).empty());
      ASSERT_TRUE(holds(call, promised(op), static_cast<std::uint64_t>(i))) << op << ", " << i;
    }
}

// Small tiles of few shapes, as drivers compile each.
TEST_F(RowExact, ProductsAndNormsKeepTheBitsOfARowOnOtherBackends) {
  for (const hal::BackendDevices& backend : registry_.enumerate()) {
    if (backend.devices.empty() || backend.backend == "null" || backend.backend == "cpu") continue;
    SCOPED_TRACE(backend.devices.front().id);
    device_ = hal::checked(registry_.open(backend.devices.front().id));
    EXPECT_EQ(promised("matmul").size(), 2u);
    const int before = runs_;
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{48, 100}, {130, 257}}) {
      const RowCall product{
          "matmul", {"", {{DType::f32, {37, k}}, {DType::f32, {n, k}}}, {{"trans_b", true}}}, {0}};
      EXPECT_TRUE(holds(product, promised("matmul"), 3)) << n << " " << k;
      const RowCall norm{"rms_norm", {"", {{DType::f32, {37, k}}, {DType::f32, {k}}}, {{"eps", 1e-5}}}, {0}};
      ASSERT_FALSE(promised("rms_norm").empty());
      EXPECT_TRUE(holds(norm, promised("rms_norm"), 4)) << k;
      for (const std::string op : {"rms_norm_grad", "layer_norm_grad"})
        EXPECT_TRUE(holds(norm_grad(op, DType::f32, 37, k, true), promised(op), 5)) << op << " " << k;
    }
    EXPECT_GT(runs_, before + 200);
  }
}

TEST_F(RowExact, ProductsOf4BitsKeepTheBitsOfARow) {
  for (int i = 0; i < fuzz_rounds(12); ++i) {
    kernels::Rng rng(static_cast<std::uint64_t>(i));
    const std::int64_t m = rng.integer(1, 40), n = rng.extent(90), blocks = rng.integer(1, 10);
    const std::int64_t k = 64 * blocks;
    const DType dtype = dtype_of(rng, {DType::f32, DType::bf16});
    RowCall call{"nf4_matmul",
                 {"",
                  {{dtype, {m, k}}, {DType::u8, {n, k / 2}}, {DType::f32, {n, blocks}}},
                  {{"columns", k}, {"block", std::int64_t{64}}, {"trans_b", true}}},
                 {0}};
    if (rng.flip()) {
      call.test.attrs.set("residual", true);
      call.by_row.push_back(3);
      call.test.inputs.push_back({dtype, {m, n}});
    }
    ASSERT_FALSE(promised("nf4_matmul").empty());
    ASSERT_TRUE(holds(call, promised("nf4_matmul"), static_cast<std::uint64_t>(i))) << i;
  }
}

TEST_F(RowExact, ProductsOfBlocksKeepTheBitsOfARow) {
  const kernels::Contract& contract = catalog_.contract("block_quantized_matmul");
  std::vector<kernels::Case> tests;
  for (const kernels::Case& test : contract.cases())
    if (!test.slow) tests.push_back(test);
  for (int i = 0; i < fuzz_rounds(40); ++i) {
    tests.push_back(contract.random_case({kernels::mix(static_cast<std::uint64_t>(i), 5)}));
    if (i % 3 == 0) tests.back() = *kernels::to_low_precision(contract, tests.back(), DType::bf16);
  }
  std::uint64_t seed = 0;
  for (const kernels::Case& test : tests) {
    const CaseCall call(catalog_, contract.name, test);
    std::vector<std::size_t> by_row{0};
    if (test.attrs.flag("residual")) by_row.push_back(test.inputs.size() - 1);
    ASSERT_TRUE(holds({contract.name, test, by_row}, promised(contract.name),
                      kernels::make_inputs(contract, call.view(), seed++)))
        << test.name << ": " << kernels::inputs_text(test.inputs, test.attrs);
  }
}

}  // namespace
}  // namespace meshloom::tests
