// Random programs go through donations, fusion, rematerialization, selection, memory planning and lowering,
// and run on the checked CPU device: the results must equal those of the references on the original program.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/print.h"
#include "kernels/program/verify.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/memory/memory.h"
#include "trainer/compose/passes/fuse.h"
#include "trainer/compose/passes/memory/donations.h"
#include "trainer/compose/passes/memory/remat.h"
#include "trainer/compose/passes/select.h"

namespace meshloom::tests {
namespace {

using kernels::Builder;
using kernels::Program;
using kernels::Role;
using kernels::Shape;
using kernels::Tensor;

constexpr std::int64_t kRows = 4, kColumns = 6;
constexpr int kInputs = 7;

// Values stay of size 1, so that one tolerance serves all.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed), builder_(catalog(), program) {
    program.name = "fuzz";
    for (int i = 0; i < 4; ++i) add_input("matrix" + std::to_string(i), {kRows, kColumns}, Role::state);
    for (int i = 0; i < 2; ++i) add_input("vector" + std::to_string(i), {kColumns}, Role::state);
    add_input("square", {kColumns, kColumns}, Role::parameter);
    const int calls = 5 + below(60);
    const int turn = calls / 2;
    for (int i = 0; i < calls; ++i) {
      builder_.path = std::vector<std::string>{"", "layer0/a", "layer0/b", "layer1"}[pick(4)];
      builder_.phase = i < turn ? kernels::Phase::forward : kernels::Phase::backward;
      const Tensor made = step();
      if (below(3) == 0) builder_.tag(made, "tag" + std::to_string(below(3)));
      pool_.push_back(made);
    }
    outputs();
    donations();
  }

  std::vector<trainer::RematRule> remat_rules() {
    std::vector<trainer::RematRule> rules;
    const int count = below(3);
    for (int i = 0; i < count; ++i) rules.push_back({"tag" + std::to_string(below(3)), policy()});
    if (below(3) > 0) rules.push_back({".*", policy()});
    return rules;
  }

  Program program;

 private:
  trainer::RematPolicy policy() { return static_cast<trainer::RematPolicy>(below(3)); }
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  std::size_t pick(std::size_t n) { return random_() % n; }

  void add_input(const std::string& name, Shape shape, Role role) {
    pool_.push_back(builder_.input(name, {kernels::DType::f32, std::move(shape)}, role));
  }

  // A value of a shape, often the most recent: chains are what fusion lives on.
  Tensor any(const Shape& shape) {
    std::vector<Tensor> fitting;
    for (const Tensor& tensor : pool_)
      if (tensor.shape() == shape) fitting.push_back(tensor);
    return below(2) ? fitting.back() : fitting[pick(fitting.size())];
  }

  Tensor step() {
    const Shape matrix{kRows, kColumns};
    const auto [x0, x1] = kernels::inputs<2>();
    switch (below(9)) {
      case 0:
        return kernels::elementwise({any(matrix)}, tanh(x0));
      case 1:
        return kernels::elementwise({any(matrix), any(matrix)}, 0.5 * (x0 + x1));
      case 2:
        return kernels::elementwise({any(matrix), any({kColumns})}, tanh(x0 + x1));
      case 3:
        return kernels::elementwise({any(matrix), any(matrix)}, {tanh(x0 * x1), sigmoid(x0 - x1)},
                                    matrix)[pick(2)];
      case 4: {
        const Tensor product = kernels::matmul(any(matrix), any({kColumns, kColumns}));
        return kernels::elementwise({below(2) ? product : kernels::add(product, any(matrix))}, tanh(x0));
      }
      case 5:
        return kernels::elementwise({kernels::reduce_sum(any(matrix), 1)}, tanh(0.25 * x0));
      case 6: {
        const Tensor flat = kernels::reshape(any(matrix), {kRows * kColumns});
        return kernels::reshape(below(2) ? kernels::elementwise({flat}, -x0) : flat, matrix);
      }
      case 7:
        return kernels::elementwise({kernels::matmul(any(matrix), any(matrix), {.trans_a = true})}, tanh(x0));
      default:
        return kernels::silu(any(matrix));
    }
  }

  void outputs() {
    for (int i = 0; i < 2; ++i) {
      const Tensor out = kernels::scale(any({kRows, kColumns}), 1.5);
      builder_.name(out, "out" + std::to_string(i));
      builder_.output(out);
    }
  }

  // Some states become values made anywhere in the program.
  void donations() {
    std::vector<Tensor> made;
    for (const Tensor& tensor : pool_)
      if (tensor.id >= kInputs && tensor.shape() == Shape{kRows, kColumns}) made.push_back(tensor);
    for (int i = 0; i < 3 && !made.empty(); ++i) {
      const std::size_t k = pick(made.size());
      builder_.donate(builder_.tensor(i), made[k]);
      builder_.output(made[k]);
      made.erase(made.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }

  std::mt19937_64 random_;
  Builder builder_;
  std::vector<Tensor> pool_;
};

Program optimise(Program program, const std::vector<trainer::RematRule>& rules) {
  program = trainer::legalize_donations(std::move(program), catalog());
  trainer::remove_dead_calls(program);
  kernels::verify(program, catalog(), "donations");
  program = trainer::fuse(std::move(program), catalog());
  kernels::verify(program, catalog(), "fuse");
  program = trainer::rematerialize(std::move(program), catalog(), rules, nullptr, {1, 1});
  program = trainer::schedule_transfers(std::move(program), catalog());
  program = trainer::legalize_donations(std::move(program), catalog());
  kernels::verify(program, catalog(), "remat");
  return program;
}

trainer::Plan plan_of(Program program, const hal::DeviceInfo& device) {
  trainer::VariantSelector selector(catalog(), device, {});
  trainer::Plan plan;
  plan.device = device.id;
  plan.profile = device.profile.name;
  trainer::plan_memory(plan, {{trainer::Step::train, selector.select(std::move(program))}}, catalog(),
                       device);
  return plan;
}

TEST(Fuzz, RandomProgramsComeOutAsWritten) {
  const char* wanted_rounds = std::getenv("MESHLOOM_FUZZ_ROUNDS");
  const std::uint64_t rounds = wanted_rounds ? std::strtoull(wanted_rounds, nullptr, 10) : 150;
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram random(seed);
    const Program written = random.program;
    Memory memory;
    std::mt19937_64 numbers(seed);
    for (kernels::ValueId id : written.inputs) {
      kernels::HostTensor value(written.value(id).type);
      for (std::int64_t i = 0; i < value.type.elements(); ++i)
        value.as<float>()[i] = std::uniform_real_distribution<float>(-1, 1)(numbers);
      memory[written.value(id).name] = value;
    }
    const std::vector<kernels::HostTensor> wanted = interpret(written, catalog(), memory);

    Bench bench("cpu");
    const Program program = optimise(written, random.remat_rules());
    trainer::Plan plan = plan_of(program, bench.device->info());
    ASSERT_NO_THROW(trainer::check_memory(plan, catalog())) << kernels::print(program);
    bench.start(std::move(plan));
    for (const auto& [name, value] : memory)
      if (bench.session->plan().persistent.count(name)) bench.session->write(name, value.data);
    bench.session->run(trainer::Step::train);

    const auto expect = [&](const std::string& name, kernels::ValueId id) {
      const std::vector<float> got = bench.read(name);
      const float* want = wanted[static_cast<std::size_t>(id)].as<float>();
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 1e-4) << name << "\n"
                                           << kernels::print(written) << kernels::print(program);
    };
    for (kernels::ValueId id : written.outputs)
      if (written.value(id).name.rfind("out", 0) == 0) expect(written.value(id).name, id);
    for (kernels::ValueId id : written.inputs) {
      kernels::ValueId final_value = id;
      for (const kernels::Donation& donation : written.donations)
        if (donation.input == id) final_value = donation.output;
      expect(written.value(id).name, final_value);
    }
  }
}

// A planted fault: a product that overwrites what it reads.
TEST(Fuzz, TheCheckNoticesWrongReuse) {
  int noticed = 0, tried = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Bench bench("cpu");
    trainer::Plan plan = plan_of(optimise(RandomProgram(seed).program, {}), bench.device->info());
    trainer::PlannedProgram& planned = plan.steps.programs.at(trainer::Step::train);
    bool planted = false;
    for (const kernels::Call& call : planned.program.calls) {
      const auto place = [&](kernels::ValueId id) -> trainer::Placement& {
        return planned.placements[static_cast<std::size_t>(id)];
      };
      if (planted || call.op != "matmul" || place(call.inputs[0]).bytes != place(call.outputs[0]).bytes)
        continue;
      place(call.outputs[0]) = place(call.inputs[0]);
      planted = true;
    }
    if (!planted) continue;
    ++tried;
    try {
      trainer::check_memory(plan, catalog());
    } catch (const Error&) {
      ++noticed;
    }
  }
  EXPECT_GT(tried, 5);
  EXPECT_EQ(noticed, tried);
}

}  // namespace
}  // namespace meshloom::tests
