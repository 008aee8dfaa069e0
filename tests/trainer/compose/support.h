// Shared by the tests of the composer: tiny models, random batches, and an interpreter that runs programs
// with the references of the contracts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "kernels/program/builder.h"
#include "layers/models/models.h"
#include "tests/message_of.h"
#include "trainer/compose/compose.h"
#include "trainer/execute/session.h"
#include "trainer/learner/adamw.h"

namespace meshloom::tests {

// Contracts, variants and devices of this build.
struct Build {
  hal::Registry registry;
  kernels::Catalog catalog;
  Build();
};
const Build& build();
inline const kernels::Catalog& catalog() { return build().catalog; }

// First device of each backend that can compute.
std::vector<std::string> computing_devices();
// As the name of a test: other characters than letters and digits become '_'.
std::string plain_name(std::string text);

layers::CausalLM::Config tiny_llama();
layers::CausalLM::Config tiny_gpt2();
// With three experts for each feed-forward. All are chosen, so that no change of a parameter changes a
// choice.
layers::CausalLM::Config of_experts(layers::CausalLM::Config model);
trainer::AdamW::Config adamw(double rate = 1e-2);

// Token ids in [0, vocabulary); a fifth of the targets are ignored.
struct Batch {
  std::vector<std::int32_t> tokens, targets;
};
Batch random_batch(std::int64_t rows, std::int64_t sequence, std::int64_t vocabulary, std::uint64_t seed);

// Values by name in, values by id out.
using Memory = std::map<std::string, kernels::HostTensor>;
std::vector<kernels::HostTensor> interpret(const kernels::Program& program, const kernels::Catalog& catalog,
                                           const Memory& inputs);

// A device that checks every rule, and a session on it.
struct Bench {
  std::unique_ptr<hal::Device> device;
  std::unique_ptr<trainer::Session> session;

  explicit Bench(const std::string& id, const std::string& profile = "");
  void start(trainer::Plan plan, std::uint64_t seed = 1);
  void feed(const Batch& batch);
  void set_rate(float rate);
  std::vector<float> read(const std::string& name);
};

// (rows, sequence) = (4, 6)
trainer::ComposeOptions small_options();

}  // namespace meshloom::tests
