// Random programs, divided over random meshes and interpreted by the references of all ranks in lock step, against the program of
// one rank: every op of the catalog, with inputs that are cut, in ranges, or summands.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "kernels/core/compare.h"
#include "kernels/core/rng.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/grouped_matmul/grouped_matmul.h"
#include "kernels/layout/layout.h"
#include "kernels/moe_routing/moe_routing.h"
#include "kernels/program/print.h"
#include "kernels/program/verify.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "tests/trainer/compose/lock_step.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/passes/distributed/partition.h"

namespace meshloom::tests {
namespace {

using kernels::Builder;
using kernels::DType;
using kernels::HostTensor;
using kernels::Program;
using kernels::Rng;
using kernels::Role;
using kernels::Shape;
using kernels::Tensor;
using kernels::TensorType;
using trainer::Topology;

const std::vector<Mesh>& meshes() {
  static const std::vector<Mesh> list{{{"data", 2}},
                                      {{"fsdp", 3}},
                                      {{"model", 2}},
                                      {{"model", 3}},
                                      {{"model", 4}},
                                      {{"expert", 2}},
                                      {{"expert", 3}},
                                      {{"data", 2}, {"fsdp", 2}},
                                      {{"data", 2}, {"expert", 2}, {"fsdp", 2}},
                                      {{"expert", 2}, {"model", 2}},
                                      {{"data", 2}, {"model", 2}},
                                      {{"fsdp", 2}, {"model", 2}},
                                      {{"seq", 2}},
                                      {{"seq", 3}},
                                      {{"data", 2}, {"seq", 2}},
                                      {{"fsdp", 2}, {"seq", 2}},
                                      {{"seq", 2}, {"model", 2}},
                                      {{"data", 2}, {"seq", 2}, {"model", 2}},
                                      {{"data", 2}, {"fsdp", 2}, {"model", 2}}};
  return list;
}

// Of the ranks of the axis seq, half of the programs each.
Topology topology_of(const Mesh& mesh, std::uint64_t seed, int rank = 0) {
  return Topology(mesh, rank)
      .with_order(seed / 32 % 2 == 0 ? trainer::SequenceOrder::contiguous : trainer::SequenceOrder::zigzag);
}

// One call whose inputs come divided in every way, and what may follow it.
struct Fuzzed {
  Program program;
  std::string op;
  std::map<kernels::ValueId, HostTensor> inputs;  // whole, by value of the program
};

class RandomPrograms {
 public:
  RandomPrograms(const Topology& mesh, std::uint64_t seed) : mesh_(mesh), rng_(seed), seed_(seed) {}

  Fuzzed make(const std::string& op) {
    const kernels::Contract& contract = catalog().contract(op);
    static constexpr std::int64_t kTiles[] = {4, 12};
    const kernels::Case one = contract.random_case({kernels::mix(seed_, 1), kTiles});
    fuzzed_.op = contract.name;
    fuzzed_.program.name = "fuzz";
    Builder builder(catalog(), fuzzed_.program);
    const std::vector<TensorType> types = contract.infer(one.inputs, one.attrs);
    const kernels::CallView view{contract.name, one.inputs, types, one.attrs};
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < one.inputs.size(); ++i)
      inputs.push_back(source(builder, kernels::make_input(contract, view, static_cast<int>(i), seed_)));
    if (rng_.flip()) builder.phase = rng_.flip(0.3) ? kernels::Phase::update : kernels::Phase::backward;
    std::vector<Tensor> results = builder.call(contract.name, inputs, one.attrs);
    for (std::size_t i = 0, n = results.size(); i < n; ++i)
      if (rng_.flip(0.3) && results[i].dtype() == DType::f32) results.push_back(follow(results[i]));
    for (const Tensor& result : results) builder.output(result);
    return std::move(fuzzed_);
  }

  // A layer of experts with its gradients: rows are sorted, go through the experts, and come back.
  Fuzzed make_experts() {
    const std::int64_t rows = rows_of_mesh(), divided = mesh_.size(trainer::AxisName::expert);
    const std::int64_t n = rng_.flip(0.8) ? rows * rng_.integer(1, 4) : rng_.integer(1, 20);
    const std::int64_t k = rng_.integer(1, 3), experts = divided * rng_.integer(1, 3), d = rng_.integer(1, 9),
                       f = 4 * rng_.integer(1, 3);
    fuzzed_.op = "moe_combine";
    fuzzed_.program.name = "experts";
    Builder builder(catalog(), fuzzed_.program);
    const auto numbers = [&](Shape shape) {
      HostTensor value({DType::f32, std::move(shape)});
      kernels::fill_uniform({value.type, value.data.data()}, kernels::mix(seed_, fuzzed_.inputs.size()), -1,
                            1);
      return value;
    };
    HostTensor ids({DType::i32, {n, k}});
    for (std::int64_t i = 0; i < n * k; ++i)
      ids.as<std::int32_t>()[i] = static_cast<std::int32_t>(rng_.integer(-1, experts - 1));
    const auto weight = [&](Shape shape, std::size_t of_features) {
      std::vector<std::string> axes(shape.size());
      axes[0] = "expert";
      if (of_features < axes.size()) axes[of_features] = "mlp";
      return input(builder, numbers(std::move(shape)), Role::parameter, std::move(axes));
    };
    const Tensor x = source(builder, numbers({n, d})), dy = source(builder, numbers({n, d})),
                 weights = source(builder, numbers({n, k})), up = weight({experts, f, d}, 1),
                 down = weight({experts, d, f}, 2), bias = rng_.flip() ? weight({experts, f}, 1) : Tensor{};
    const kernels::ExpertGroups groups = kernels::expert_groups(source(builder, ids), experts);
    const Tensor in = kernels::moe_dispatch(x, groups.slot);
    const Tensor h = kernels::grouped_matmul(in, up, groups.offsets, {.trans_b = true, .bias = bias});
    const Tensor out = kernels::grouped_matmul(h, down, groups.offsets, {.trans_b = true});
    builder.output(kernels::moe_combine(out, groups.slot, weights));
    builder.phase = kernels::Phase::backward;
    const Tensor dout = kernels::moe_dispatch(dy, groups.slot, weights),
                 dh = kernels::grouped_matmul(dout, down, groups.offsets),
                 din = kernels::grouped_matmul(dh, up, groups.offsets);
    builder.output(kernels::moe_combine(din, groups.slot));
    builder.output(kernels::row_dot(out, dy, groups.slot));
    builder.output(kernels::grouped_outer(dout, h, groups.offsets));
    builder.output(kernels::grouped_outer(dh, in, groups.offsets));
    if (bias) builder.output(kernels::grouped_sum(dh, groups.offsets));
    return std::move(fuzzed_);
  }

 private:
  std::int64_t rows_of_mesh() const {
    return mesh_.size(trainer::AxisSet(trainer::AxisName::data) | trainer::AxisName::fsdp |
                      trainer::AxisName::expert);
  }

  Tensor input(Builder& builder, HostTensor value, Role role, std::vector<std::string> axes = {}) {
    const Tensor made =
        builder.input("input" + std::to_string(fuzzed_.inputs.size()), value.type, role, std::move(axes));
    fuzzed_.inputs.emplace(made.id, std::move(value));
    return made;
  }

  std::vector<std::string> label(const TensorType& type, std::size_t d, const std::string& axis) const {
    std::vector<std::string> axes(static_cast<std::size_t>(type.rank()));
    if (d < axes.size()) axes[d] = axis;
    return axes;
  }

  static std::vector<std::string> tokens(int rank) {
    std::vector<std::string> axes(static_cast<std::size_t>(rank));
    axes[0] = "batch", axes[1] = "seq";
    return axes;
  }

  // A tensor of this type in front of which dimension there are `count` more, of which one holds the value and the rest nothing, so
  // that their sum is exact.
  HostTensor spread(const HostTensor& value, std::int64_t count) {
    TensorType type = value.type;
    type.shape.insert(type.shape.begin(), count);
    HostTensor wide(type);
    std::fill(wide.data.begin(), wide.data.end(), std::byte{});
    const std::int64_t row = rng_.integer(0, count - 1);
    std::memcpy(wide.data.data() + row * value.type.bytes(), value.data.data(), value.data.size());
    return wide;
  }

  Tensor source(Builder& builder, const HostTensor& value) {
    const TensorType& type = value.type;
    const bool f32 = type.dtype == DType::f32 && type.rank() > 0 && type.rank() < 4;
    const std::int64_t rows = rows_of_mesh();
    const auto d = static_cast<std::size_t>(rng_.integer(0, std::max(type.rank() - 1, 0)));
    const std::int64_t seq = mesh_.size(trainer::AxisName::seq),
                       runs = mesh_.zigzag(trainer::AxisName::seq) ? 2 * seq : seq;
    switch (rng_.integer(0, seq > 1 ? 9 : 6)) {
      case 7:  // rows and tokens
        if (type.rank() < 2 || hal::size_of(type.dtype) == 1 || type.shape[0] % rows != 0 ||
            type.shape[1] % runs != 0)
          break;
        return input(builder, value, Role::input, tokens(type.rank()));
      case 8:
      case 9: {  // rows and tokens in one dimension
        if (type.rank() == 0 || hal::size_of(type.dtype) == 1 || type.shape[0] % (rows * runs) != 0) break;
        HostTensor apart = value;
        apart.type.shape[0] = rows;
        apart.type.shape.insert(apart.type.shape.begin() + 1, type.shape[0] / rows);
        return kernels::reshape(input(builder, apart, Role::input, tokens(apart.type.rank())), type.shape);
      }
      case 0:
        return input(builder, value, Role::state);
      case 1:
        if (!hal::is_float(type.dtype) && type.dtype != DType::u8) break;
        return input(
            builder, value, Role::parameter,
            type.rank() > 0 && type.shape[0] % mesh_.size(trainer::AxisName::expert) == 0 && rng_.flip()
                ? label(type, 0, "expert")
                : label(type, d, "mlp"));
      case 2: {  // an activation, cut like a parameter
        if (!f32) break;
        const Tensor parameter = input(builder, value, Role::parameter, label(type, d, "mlp"));
        HostTensor zeros(type);
        return kernels::add(parameter, input(builder, zeros, Role::state));
      }
      case 3:
      case 4:
        if (type.rank() == 0 || type.shape[0] % rows != 0) break;
        return input(builder, value, Role::input, label(type, 0, "batch"));
      case 5:
        if (!f32) break;
        return kernels::reduce_sum(input(builder, spread(value, 4), Role::parameter,
                                         label({DType::f32, {4, 1, 1, 1}}, 0, "mlp"), type.rank()),
                                   type.rank());
      default:
        if (!f32) break;
        return kernels::reduce_sum(input(builder, spread(value, 2 * rows), Role::input,
                                         label({DType::f32, {4, 1, 1, 1}}, 0, "batch"), type.rank()),
                                   type.rank());
    }
    return input(builder, value, Role::state);
  }

  // The label of a spread value has as many entries as it has dimensions.
  Tensor input(Builder& builder, HostTensor value, Role role, std::vector<std::string> axes, int rank) {
    axes.resize(static_cast<std::size_t>(rank) + 1);
    return input(builder, std::move(value), role, std::move(axes));
  }

  Tensor follow(Tensor x) {
    const int rank = x.type().rank();
    switch (rng_.integer(0, 3)) {
      case 0:
        return kernels::scale(x, 0.5);
      case 1:
        return kernels::reshape(x, {x.type().elements()});
      case 2:
        if (rank < 2 || rank > 4) break;
        return kernels::reduce_sum(x, 1);
      default:
        if (rank < 2 || rank > 4) break;
        std::vector<std::int64_t> order;
        for (int i = 0; i < rank; ++i) order.push_back((i + 1) % rank);
        return kernels::permute(x, order);
    }
    return kernels::add(x, x);
  }

  const Topology& mesh_;
  Rng rng_;
  std::uint64_t seed_;
  Fuzzed fuzzed_;
};

const std::string& method(std::uint64_t seed) {
  static const std::vector<std::string> all{"gather", "all_to_all", "ring"};
  return all[seed / 64 % all.size()];
}

// The first difference between the program over the mesh and over one rank, "" = none. `catalog` is what divides it.
std::string difference(const kernels::Catalog& dividing, const Fuzzed& fuzzed, const Mesh& mesh,
                       std::uint64_t seed, const std::string& attention = "gather") {
  const Topology first(mesh);
  const Values whole = interpret(fuzzed.program, catalog(), fuzzed.inputs);
  std::vector<Rank> ranks;
  for (int r = 0; r < first.ranks(); ++r) {
    const Topology topology = topology_of(mesh, seed, r);
    trainer::Partitioned divided = trainer::partition(fuzzed.program, dividing, topology, attention);
    kernels::verify(divided.program, catalog(), "partition");
    Values values;
    for (std::size_t i = 0; i < fuzzed.program.inputs.size(); ++i) {
      const HostTensor& value = fuzzed.inputs.at(fuzzed.program.inputs[i]);
      const kernels::Value& local = divided.program.value(divided.program.inputs[i]);
      const auto found = divided.divided.find(local.name);
      const trainer::Layout layout = found == divided.divided.end()
                                         ? trainer::whole_layout(value.type)
                                         : trainer::layout_of(found->second, topology, r);
      values.emplace(divided.program.inputs[i], part_of(value, layout, local.type));
    }
    ranks.emplace_back(catalog(), std::move(divided), std::move(values));
  }
  if (!run_in_lock_step(ranks, mesh)) return "ranks have different numbers of collectives";
  const auto call = std::find_if(
      fuzzed.program.calls.begin(), fuzzed.program.calls.end(),
      [&](const kernels::Call& c) { return c.op == fuzzed.op && c.outputs[0] == fuzzed.program.outputs[0]; });
  const kernels::CallTypes types(fuzzed.program, *call);
  std::vector<HostTensor> inputs, want;
  for (const kernels::ValueId id : call->inputs) inputs.push_back(whole.at(id));
  for (const kernels::ValueId id : call->outputs) want.push_back(whole.at(id));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<HostTensor> got;
    for (const kernels::ValueId id : ranks[r].program().outputs) got.push_back(ranks[r].value(id));
    for (std::size_t o = 0; o < got.size(); ++o) {
      const HostTensor& expected = whole.at(fuzzed.program.outputs[o]);
      if (got[o].type != expected.type) return "output " + std::to_string(o) + " is not whole";
      const bool own = o < want.size();
      const kernels::Comparison comparison =
          own ? kernels::compare_output(
                    catalog().contract(fuzzed.op), types.view(*call), inputs, want,
                    std::vector<HostTensor>(got.begin(),
                                            got.begin() + static_cast<std::ptrdiff_t>(want.size())),
                    static_cast<int>(o))
              : kernels::compare({expected.type, expected.data.data()}, {got[o].type, got[o].data.data()},
                                 {1e-4, 1e-4, 1});
      if (!comparison.ok)
        return "rank " + std::to_string(r) + ", output " + std::to_string(o) + ": " + comparison.text;
    }
  }
  return "";
}

std::string difference(const kernels::Catalog& dividing, const std::string& op, const Mesh& mesh,
                       std::uint64_t seed) {
  return difference(dividing, RandomPrograms(topology_of(mesh, seed), seed).make(op), mesh, seed,
                    method(seed));
}

std::int64_t programs() {
  const char* count = std::getenv("MESHLOOM_FUZZ_ROUNDS");
  return count ? std::atoll(count) : 2000;
}

// MESHLOOM_FUZZ_FROM=N: the first of them, to come back to one that failed.
std::int64_t first_program() {
  const char* first = std::getenv("MESHLOOM_FUZZ_FROM");
  return first ? std::atoll(first) : 0;
}

std::vector<std::string> ops() {
  std::vector<std::string> names;
  for (const kernels::Contract* contract : catalog().contracts())
    if (contract->random_case && !contract->moves && contract->name != "transfer")
      names.push_back(contract->name);
  return names;
}

TEST(PartitionFuzz, RandomProgramsAreEqualToOneRank) {
  int failures = 0;
  for (std::int64_t i = first_program(); i < first_program() + programs() && failures < 8; ++i) {
    const std::string op = ops()[static_cast<std::size_t>(i) % ops().size()];
    const std::uint64_t seed = kernels::mix(24, static_cast<std::uint64_t>(i));
    const Mesh& mesh = meshes()[seed % meshes().size()];
    std::string text;
    try {
      text = difference(catalog(), op, mesh, seed);
    } catch (const std::exception& error) {
      text = error.what();
      // One way to divide attention may refuse what another takes.
      if (method(seed) != "gather" && text.find("flash_attention divided ") != std::string::npos)
        text.clear();
    }
    if (text.empty()) continue;
    ++failures;
    ADD_FAILURE() << "program " << i << ", " << op << " over " << Topology(mesh).text() << ": " << text
                  << "\n"
                  << kernels::print(RandomPrograms(topology_of(mesh, seed), seed).make(op).program);
  }
}

TEST(PartitionFuzz, RandomExpertsAreEqualToOneRank) {
  int failures = 0, divided = 0;
  for (std::int64_t i = first_program(); i < first_program() + programs() / 10 && failures < 4; ++i) {
    const std::uint64_t seed = kernels::mix(5, static_cast<std::uint64_t>(i));
    const Mesh& mesh = meshes()[seed % meshes().size()];
    const Fuzzed fuzzed = RandomPrograms(topology_of(mesh, seed), seed).make_experts();
    std::string text;
    try {
      text = difference(catalog(), fuzzed, mesh, seed);
      const Program program = trainer::partition(fuzzed.program, catalog(), topology_of(mesh, seed)).program;
      divided += std::any_of(program.calls.begin(), program.calls.end(), [](const kernels::Call& call) {
        return call.op == "expert_groups" && call.attrs.has("first");
      });
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (text.empty()) continue;
    ++failures;
    ADD_FAILURE() << "program " << i << " over " << Topology(mesh).text() << ": " << text << "\n"
                  << kernels::print(fuzzed.program);
  }
  if (first_program() == 0) {
    EXPECT_GT(divided, 10);
  }
}

// How many of so many programs of an op differ where its contract is wrong.
int wrong_programs(const std::string& op, const std::function<void(kernels::Contract&)>& spoil,
                   std::uint64_t count = 60) {
  kernels::Catalog planted;
  for (const kernels::Contract* one : catalog().contracts()) {
    kernels::Contract contract = *one;
    if (contract.name == op) spoil(contract);
    planted.add(std::move(contract));
  }
  int wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = kernels::mix(7, i);
    try {
      wrong += difference(planted, op, meshes()[seed % meshes().size()], seed).empty() ? 0 : 1;
    } catch (const std::exception&) {
      ++wrong;
    }
  }
  return wrong;
}

TEST(PartitionFuzz, AForgottenSumIsCaught) {
  EXPECT_GT(wrong_programs("matmul",
                           [](kernels::Contract& contract) {
                             contract.partition = [](const kernels::CallView& call) {
                               std::string rule = catalog().contract("matmul").partition(call);
                               for (char& c : rule)
                                 if (c == 'k') c = 'K';  // as if the call added up itself
                               return rule;
                             };
                           }),
            0);
}

TEST(PartitionFuzz, AWrongAttributeIsCaught) {
  EXPECT_GT(wrong_programs("embedding",
                           [](kernels::Contract& contract) {
                             contract.local = [](const kernels::LocalArgs& args) {
                               return args.builder.call(args.whole.op, args.inputs, args.attrs);
                             };
                           }),
            0);
}

// A shard that takes its two runs of a sequence for each other.
TEST(PartitionFuzz, SwappedRunsAreCaught) {
  for (const char* op : {"flash_attention", "rope"})
    EXPECT_GT(wrong_programs(
                  op,
                  [](kernels::Contract& contract) {
                    contract.local = [](const kernels::LocalArgs& args) {
                      std::map<char, kernels::Cut> cuts = args.cuts;
                      for (auto& [letter, cut] : cuts)
                        if (cut.second) std::swap(cut.first, *cut.second);
                      return catalog()
                          .contract(args.whole.op)
                          .local({args.builder, args.whole, args.inputs, args.attrs, cuts, args.method});
                    };
                  },
                  std::string(op) == "rope" ? 2400 : 60),  // few have tokens that are divided
              0)
        << op;
}

TEST(PartitionFuzz, SwappedAxesAreCaught) {
  EXPECT_GT(wrong_programs("permute",
                           [](kernels::Contract& contract) {
                             contract.partition = [](const kernels::CallView& call) {
                               const std::string x =
                                   std::string("abcd").substr(0, call.inputs[0].shape.size());
                               return x + "->" + x;
                             };
                           }),
            0);
}

}  // namespace
}  // namespace meshloom::tests
