// What the default run of random calls must find: kernels that are right but for one fault at the edge of a tile, in a tail,
// in an offset, in what a tile before left behind, or at the edge of a mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/matmul/matmul.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/planted.h"
#include "tests/kernels/planted_faults.h"

namespace meshloom::tests::planted {
namespace {

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

// The last code of a block's tail, an element of code 2 or more, is that of the neighbour below.
void last_code(Call& call, int o, int codes) {
  const Int count = call.view.inputs[0].elements();
  auto* bytes = reinterpret_cast<std::uint8_t*>(call.row(o, 0));
  std::uint8_t& code = bytes[(count - 1) / 256 * 260 + (count - 1) % 256];
  if (count > 4 && count % 4 == 1 && code % codes > 1) --code;
}

std::vector<Fault> faults() {
  std::vector<Fault> all{
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
  };
  for (const std::vector<Fault>& more : {attention_faults(), product_faults()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

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
}  // namespace meshloom::tests::planted
