// Ranks of one job on devices of different backends, and what ranks must agree in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "backends/threads/backend.h"
#include "hal/registry.h"
#include "hal/wrappers/slowed_device.h"
#include "kernels/core/catalog.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
#include "trainer/compose/compose.h"
#include "trainer/data/corpus.h"
#include "trainer/execute/session.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"
#include "trainer/run/balance_rows.h"
#include "trainer/run/rank_devices.h"
#include "trainer/run/ranks.h"
#include "trainer/run/state/field_rules.h"
#include "trainer/run/state/save_pieces.h"
#include "trainer/run/step_runner.h"

namespace meshloom::tests {
namespace {

using backends::threads::run_ranks;
using hal::Transport;
using testing::AllOf;
using testing::HasSubstr;
using namespace trainer;

class UnlikeDevices : public testing::Test {
 protected:
  UnlikeDevices() : classes_(recipe_classes()) {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    for (const hal::BackendDevices& found : registry_.enumerate())
      if (!found.devices.empty() && found.devices.front().computes) ids_.push_back(found.devices.front().id);
    corpus_ = read_corpus({scratch_.file("text", sample_text(20000))}, {}, 0.1, *byte_tokenizer(), 256, 64);
  }

  // Each device's first, then the CPU.
  std::string id_of(std::size_t rank) const { return ids_[std::min(rank, ids_.size() - 1)]; }

  TrainerConfig config_for(const std::string& id, std::int64_t ranks) const {
    TrainerConfig config = tiny();
    layers::replace(config, "FeedForward", "MoE{num_experts=4}", classes_);
    if (!learner_.empty()) layers::replace(config, "AdamW", learner_, classes_);
    config.batch = 6;
    config.mesh->data = ranks;
    config.hardware_rules = false;
    resolve(config, {.device = id}, registry_, classes_);
    config.check();
    return config;
  }

  using Values = std::map<std::string, std::vector<std::byte>>;  // by name

  // What of the model and of its optimizer the rank has whole after so many steps.
  Values trained(const std::string& id, hal::Device& device, int ranks, Transport* transport,
                 int steps) const {
    const TrainerConfig config = config_for(id, ranks);
    ComposeOptions options = config.compose_options();
    options.rank = transport ? transport->rank() : 0;
    Plan plan = compose_training(*config.model, *config.learner, options, catalog_, device.info());
    if (transport) require_same_moves(*transport, plan, catalog_, 60);
    Session session(device, catalog_, std::move(plan), {}, {transport, 60, {}});
    initialize(session, static_cast<std::uint64_t>(config.seed));
    StepRunner steps_of(config, session,
                        std::make_unique<TextWindows>(corpus_.train(), config.batch, config.sequence,
                                                      static_cast<std::uint64_t>(config.seed)),
                        nullptr);
    for (int step = 0; step < steps; ++step) steps_of.step(step);
    Values values;
    const auto read = [&](const std::string& name) {
      if (session.plan().divided.count(name) > 0) return;
      std::vector<std::byte>& value = values[name];
      value.resize(static_cast<std::size_t>(session.plan().persistent_types.at(name).bytes()));
      session.read(name, value);
    };
    for (const layers::ParameterInfo& parameter : session.plan().parameters) read(parameter.path);
    for (const auto& [name, type] : session.plan().states) read(name);
    return values;
  }

  // What the ranks have after so many steps, each on a device of its own.
  std::vector<Values> trained_on_all(int ranks, int steps) const {
    std::vector<std::unique_ptr<hal::Device>> devices;
    for (int rank = 0; rank < ranks; ++rank)
      devices.push_back(registry_.open(id_of(static_cast<std::size_t>(rank))));
    std::vector<Values> values(devices.size());
    run_ranks(ranks, [&](std::unique_ptr<Transport> transport) {
      const auto rank = static_cast<std::size_t>(transport->rank());
      values[rank] = trained(id_of(rank), *devices[rank], ranks, transport.get(), steps);
    });
    return values;
  }

  hal::Registry registry_;
  kernels::Catalog catalog_;
  layers::ClassTable classes_;
  std::string learner_;  // in the place of AdamW
  std::vector<std::string> ids_;
  Scratch scratch_;
  Corpus corpus_;
};

std::string first_difference(const std::map<std::string, std::vector<std::byte>>& a,
                             const std::map<std::string, std::vector<std::byte>>& b) {
  for (const auto& [name, value] : a)
    if (b.count(name) == 0 || b.at(name) != value) return name;
  return "";
}

// AdamW on unlike devices differs in the last bit, so replicas that each device updated by itself would drift apart.
TEST_F(UnlikeDevices, ReplicasAreEqualBytes) {
  if (ids_.size() < 2) GTEST_SKIP() << "there is one backend with a device only";
  const std::vector<Values> values = trained_on_all(3, 50);
  ASSERT_GT(values[0].size(), 10u);
  for (std::size_t rank = 1; rank < values.size(); ++rank)
    EXPECT_EQ(first_difference(values[0], values[rank]), "") << id_of(0) << " and " << id_of(rank);
  // Alone, the same devices come to different bytes.
  const auto alone = [&](std::size_t i) {
    return trained(id_of(i), *registry_.open(id_of(i)), 1, nullptr, 3);
  };
  EXPECT_NE(first_difference(alone(0), alone(1)), "");
}

// Each matrix is updated by the rank that owns it.
TEST_F(UnlikeDevices, ReplicasUnderMuonAreEqualBytes) {
  if (ids_.size() < 2) GTEST_SKIP() << "there is one backend with a device only";
  for (const char* learner : {"Muon{}", "Adafactor{}"}) {
    learner_ = learner;
    const std::vector<Values> values = trained_on_all(3, 5);
    ASSERT_GT(values[0].size(), 10u);
    for (std::size_t rank = 1; rank < values.size(); ++rank)
      EXPECT_EQ(first_difference(values[0], values[rank]), "")
          << learner << ", " << id_of(0) << " and " << id_of(rank);
  }
}

TEST_F(UnlikeDevices, TrainToTheLossesOfOne) {
  if (ids_.size() < 2) GTEST_SKIP() << "there is one backend with a device only";
  const std::string text = scratch_.file("text.txt", sample_text(20000)),
                    common = "train tiny --data " + text + " --batch 6 --sample 0 --quiet --out " +
                             scratch_.path() + "/",
                    devices = "'0:" + id_of(0) + " 1:" + id_of(1) + " 2:" + id_of(2) + "'";
  const Outcome alone = meshloom(common + "alone --steps 20 --device cpu"),
                mixed = meshloom(common + "mixed --steps 20 --mesh data=3 --rank-devices " + devices);
  ASSERT_EQ(alone.code, 0) << alone.err;
  ASSERT_EQ(mixed.code, 0) << mixed.err;
  EXPECT_THAT(mixed.err, HasSubstr("rank 0 on " + id_of(0)));
  EXPECT_THAT(mixed.err, HasSubstr("rank 1 on " + id_of(1)));
  const auto one = losses(scratch_.path("alone")), three = losses(scratch_.path("mixed"));
  ASSERT_EQ(one.size(), 20u);
  ASSERT_EQ(three.size(), 20u);
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(three[i].second, one[i].second, 1e-4) << "step " << i + 1;
  // A resume knows what the other ranks were.
  const Outcome other =
      meshloom(common + "mixed --steps 21 --resume --mesh data=3 --rank-devices '0:" + id_of(0) +
               " 1,2:" + id_of(0) + "'");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("rank 1: "));
}

TEST_F(UnlikeDevices, BadRankDevicesAreRefused) {
  const std::string common = "train tiny --data " + scratch_.file("text.txt", sample_text(20000)) +
                             " --batch 6 --sample 0 --steps 1 --out " + scratch_.path("bad") +
                             " --rank-devices ";
  const std::vector<std::pair<std::string, std::string>> bad{
      {"'0:cpu 1:cpu' --mesh data=3", "must name a device for each of the job's 3 ranks; found 2"},
      {"'0:cpu 2:cpu'", "must name a device for rank 1; found none"},
      {"'0:cpu 0-1:cpu'", "must name one device for rank 0; found cpu and cpu"},
      {"'cpu'", "must read RANKS:DEVICE"},
      {"'a:cpu'", "found 'a' as ranks"},
      {"'1-0:cpu'", "found '1-0' as ranks"},
      {"'0-99999999:cpu'", "found '0-99999999' as ranks"},
      {"''", "must read RANKS:DEVICE"},
      {"'0:cpu 1:cpu' --device cpu", "--device and --selector must not be given besides"},
      {"'0:cpu 1:cpu:7' --mesh data=2", "the index must be below the number of devices; found 1 device(s)"},
      {"'0:cpu 1:gpu' --mesh data=2", "the backend must be one of those built"},
  };
  for (const auto& [options, message] : bad) {
    const Outcome outcome = meshloom(common + options);
    EXPECT_EQ(outcome.code, 1) << options;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << options;
    EXPECT_EQ(outcome.errors().size(), 1u) << outcome.err;
  }
}

TEST(RankDevices, AreListsAndRanges) {
  const std::vector<RankDevice> devices = parse_rank_devices(" 0:vulkan:0  1,4:opencl 2-3:null:h100 ");
  ASSERT_EQ(devices.size(), 5u);
  const std::vector<std::string> want{"vulkan:0", "opencl", "null:h100", "null:h100", "opencl"};
  for (std::size_t rank = 0; rank < want.size(); ++rank) EXPECT_EQ(devices[rank].device, want[rank]) << rank;
  EXPECT_TRUE(devices[0].indexed);
  EXPECT_FALSE(devices[1].indexed);
}

// What each of the ranks gets to see when `body` is run on all.
std::vector<std::string> messages(int ranks, const std::function<void(Transport&)>& body) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](std::unique_ptr<Transport> transport) {
    said[static_cast<std::size_t>(transport->rank())] = message_of([&] { body(*transport); });
  });
  for (const std::string& text : said) EXPECT_EQ(text, said[0]);
  return said;
}

TEST(Agreement, NamesTheFirstDifferenceAndBothRanks) {
  const auto said = [](const std::function<void(TrainerConfig&)>& edit, std::uint64_t data) {
    return messages(3, [&](Transport& transport) {
      TrainerConfig config = tiny();
      const bool other = transport.rank() == 2;
      if (other) edit(config);
      require_agreement(transport, config, other ? data : 1, 60);
    })[0];
  };
  EXPECT_EQ(said([](TrainerConfig&) {}, 1), "no error");
  EXPECT_THAT(
      said([](TrainerConfig& config) { config.batch = 6; }, 1),
      testing::MatchesRegex("rank 2 \\(.*\\): must have the recipe's batch of rank 0 .*: 4; found 6"));
  EXPECT_THAT(said([](TrainerConfig& config) { config.dtype = "bf16"; }, 1), HasSubstr("recipe's dtype"));
  EXPECT_THAT(said([](TrainerConfig&) {}, 2),
              AllOf(HasSubstr("must have the data of rank 0"), HasSubstr("found xxhash64 0000000000000002")));
  // A child that only one of them has.
  EXPECT_THAT(said([](TrainerConfig& config) { config.learner->ema = layers::Child<Ema>(Ema()); }, 1),
              HasSubstr("learner.ema"));
  // Where and how a rank computes is its own.
  EXPECT_EQ(said(
                [](TrainerConfig& config) {
                  config.device = "opencl:0";
                  config.profile = "tpu-v5e";
                  config.memory = 1 << 30;
                  config.kernels.emplace_back(KernelRuleConfig());
                  config.remat.emplace_back(RematRuleConfig());
                },
                1),
            "no error");
}

TEST(Agreement, EveryFieldHasOneRule) {
  EXPECT_TRUE(field_rule("device").per_rank);
  EXPECT_TRUE(field_rule("kernels[0].op").per_rank);
  EXPECT_FALSE(field_rule("mesh.data").per_rank);
  EXPECT_TRUE(field_rule("mesh_rules[0].pattern").per_rank);
  EXPECT_EQ(field_rule("mesh.data").resume, FieldRule::Resume::rounding);
  EXPECT_EQ(field_rule("model.decoder.num_layers").resume, FieldRule::Resume::fixed);
  EXPECT_EQ(field_rule("devices").resume, FieldRule::Resume::fixed);
}

TEST(Agreement, AGpuIsSharedWhereThatWasAskedForOnly) {
  const auto said = [](bool named, bool is_cpu, const std::string& second) {
    return messages(3, [&](Transport& transport) {
      hal::DeviceInfo device;
      device.id = transport.rank() == 2 ? second : "vulkan:" + std::to_string(transport.rank());
      device.name = "a product";
      device.is_cpu = is_cpu;
      require_own_devices(transport, device, named, "vulkan-gpu-1", 60);
    })[0];
  };
  EXPECT_THAT(said(false, false, "vulkan:1"),
              AllOf(HasSubstr("such as \"1,2:vulkan:1\""), HasSubstr("found rank 1 (")));
  EXPECT_EQ(said(false, false, "vulkan:2"), "no error");
  EXPECT_EQ(said(true, false, "vulkan:1"), "no error");
  EXPECT_EQ(said(false, true, "vulkan:1"), "no error");
}

TEST_F(UnlikeDevices, MovesMustBeTheSame) {
  const auto device = registry_.open("cpu");
  const auto said = [&](const std::function<void(std::vector<kernels::Call>&)>& edit) {
    return messages(2, [&](Transport& transport) {
      const TrainerConfig config = config_for("cpu", 2);
      ComposeOptions options = config.compose_options();
      options.rank = transport.rank();
      Plan plan = compose_training(*config.model, *config.learner, options, catalog_, device->info());
      if (transport.rank() == 1) edit(plan.steps.programs.at(Step::train).program.calls);
      require_same_moves(transport, plan, catalog_, 60);
    })[0];
  };
  const auto is_move = [&](const kernels::Call& call) { return catalog_.contract(call.op).moves != nullptr; };
  EXPECT_EQ(said([](auto&) {}), "no error");
  EXPECT_THAT(said([&](std::vector<kernels::Call>& calls) {
                calls.erase(std::find_if(calls.begin(), calls.end(), is_move));
              }),
              AllOf(HasSubstr("must have the moves of rank 0"), HasSubstr("of the program train")));
  EXPECT_THAT(said([&](std::vector<kernels::Call>& calls) { std::erase_if(calls, is_move); }),
              HasSubstr("rank 1"));
}

// As where its disk is full.
TEST_F(UnlikeDevices, ARankThatCannotWriteItsPartIsNamed) {
  const Scratch out;
  std::filesystem::create_directory(out.path("optimizer-00002-of-00002.safetensors"));
  std::vector<std::unique_ptr<hal::Device>> devices;
  for (int rank = 0; rank < 2; ++rank) devices.push_back(registry_.open("cpu"));
  const auto said = messages(2, [&](Transport& transport) {
    const TrainerConfig config = config_for("cpu", 2);
    ComposeOptions options = config.compose_options();
    options.rank = transport.rank();
    hal::Device& device = *devices[static_cast<std::size_t>(transport.rank())];
    Session session(device, catalog_,
                    compose_training(*config.model, *config.learner, options, catalog_, device.info()), {},
                    {&transport, 60, {}});
    initialize(session, 1);
    save_pieces(session, transport, transport.rank() == 0 ? out.path() : "", 60);
  })[0];
  EXPECT_THAT(said,
              testing::MatchesRegex("rank 1 \\(.*\\): must write its part of the checkpoint; found .*"));
}

TEST_F(UnlikeDevices, TheSecondsOfARowAreMeasured) {
  const std::string text = scratch_.file("text.txt", sample_text(20000));
  for (const std::string& id : ids_) {
    SCOPED_TRACE(id);
    TrainerConfig config = config_for(id, 3);
    config.input->files = {text};
    const std::unique_ptr<Dataset> data = config.input->open(*byte_tokenizer(), 256, config.sequence);
    const auto device = registry_.open(id);
    const double seconds = row_seconds(config, *data, *device, catalog_);
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 60);
    EXPECT_EQ(device->allocated_bytes(), 0) << "the run gets all memory";
  }
}

TEST_F(UnlikeDevices, RowsAreThoseThatFit) {
  TrainerConfig config = config_for("cpu", 3);
  config.batch = 12;
  config.eval_batches = 0;
  hal::DeviceInfo device = registry_.open("cpu")->info();
  const auto bytes = [&](std::vector<std::int64_t> shares) {
    ComposeOptions options = config.compose_options();
    options.rank = 1;
    options.shares = std::move(shares);
    return compose_training(*config.model, *config.learner, options, catalog_, device).peak_bytes;
  };
  EXPECT_EQ(max_rows(config, device, catalog_, 1), 0) << "of all memory";
  device.limits.memory_bytes = bytes({5, 6, 1});
  const std::int64_t rows = max_rows(config, device, catalog_, 1);
  EXPECT_GE(rows, 5);
  EXPECT_LE(rows, 6);
  EXPECT_LE(bytes({11 - rows, rows, 1}), device.limits.memory_bytes);
  device.limits.memory_bytes = 1000;
  EXPECT_EQ(max_rows(config, device, catalog_, 1), 1);
}

TEST_F(UnlikeDevices, RowsAreDividedBySpeed) {
  const std::string text = scratch_.file("text.txt", sample_text(20000));
  const auto shares_of = [&](const std::vector<std::int64_t>& known, std::int64_t rows) {
    std::vector<std::vector<std::int64_t>> shares(2);
    const std::vector<std::string> said = messages(2, [&](Transport& transport) {
      TrainerConfig config = config_for("cpu", 2);
      config.batch = rows;
      config.input->files = {text};
      const std::unique_ptr<Dataset> data = config.input->open(*byte_tokenizer(), 256, config.sequence);
      std::unique_ptr<hal::Device> device = registry_.open("cpu");
      if (transport.rank() == 1) device = hal::slowed(std::move(device), 30);
      balance_rows(config, *data, *device, catalog_, transport, 60,
                   transport.rank() == 0 ? known : std::vector<std::int64_t>{});
      shares[static_cast<std::size_t>(transport.rank())] = config.mesh->shares;
    });
    EXPECT_EQ(shares[0], shares[1]);
    return std::pair(said[0], shares[0]);
  };
  const auto measured = shares_of({}, 20).second;
  ASSERT_EQ(measured.size(), 2U);
  EXPECT_EQ(measured[0] + measured[1], 20);
  EXPECT_GT(measured[0], measured[1]);
  EXPECT_EQ(shares_of({3, 17}, 20).second, (std::vector<std::int64_t>{3, 17}));
  EXPECT_THAT(shares_of({}, 1).first, HasSubstr("2 ranks need at least a row each"));
}

}  // namespace
}  // namespace meshloom::tests
