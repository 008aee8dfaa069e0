// Programs with collectives, run by sessions of several ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <memory>
#include <utility>

#include "backends/threads/backend.h"
#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/collective/collective.h"
#include "kernels/core/catalog.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/builder.h"
#include "tests/message_of.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/memory/memory.h"
#include "trainer/compose/passes/select.h"
#include "trainer/execute/session.h"

namespace meshloom::trainer {
namespace {

using backends::threads::run_ranks;
using hal::Transport;
using kernels::Builder;
using kernels::DType;
using kernels::GroupPlace;
using kernels::Role;
using kernels::Tensor;
using testing::HasSubstr;
using tests::message_of;
using Floats = std::vector<float>;

struct Build {
  hal::Registry registry;
  kernels::Catalog catalog;
  Build() {
    kernels::add_contracts(catalog);
    register_backends(registry, catalog);
  }
};
const Build& build() {
  static const Build here;
  return here;
}

// The first device of each backend that can compute.
std::vector<std::string> computing_devices() {
  std::vector<std::string> ids;
  for (const hal::BackendDevices& found : build().registry.enumerate())
    if (!found.devices.empty() && found.backend != "null") ids.push_back(found.devices.front().id);
  return ids;
}

std::unique_ptr<hal::Device> open(const std::string& id) { return hal::checked(build().registry.open(id)); }

Plan plan_of(const std::function<void(Builder&)>& write, const Topology& mesh,
             const hal::DeviceInfo& device) {
  kernels::Program program;
  program.name = "eval";
  Builder builder(build().catalog, program);
  builder.path = "decoder";
  write(builder);
  Plan plan;
  plan.device = device.id;
  plan.profile = device.profile.name;
  plan.mesh = mesh;
  VariantSelector selector(build().catalog, device, {});
  plan_memory(plan, {{Step::evaluate, selector.select(std::move(program))}}, build().catalog, device);
  check_memory(plan, build().catalog);
  return plan;
}

void give(Builder& builder, Tensor tensor, const std::string& name) {
  builder.name(tensor, name);
  builder.output(tensor);
}

void write(Session& session, const std::string& name, const Floats& values) {
  session.write(name, std::as_bytes(std::span(values)));
}

Floats read(Session& session, const std::string& name) {
  Floats values(static_cast<std::size_t>(session.plan().persistent_types.at(name).elements()));
  session.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

// Runs a body on every rank with a session of its own. Devices are opened one after another, by this thread.
void on_ranks(const std::string& id, const std::vector<MeshAxis>& axes,
              const std::function<void(Builder&, const Topology&)>& program,
              const std::function<void(Session&, const Topology&)>& body) {
  const int ranks = Topology(axes).ranks();
  std::vector<std::unique_ptr<hal::Device>> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(open(id));
  run_ranks(ranks, [&](std::unique_ptr<Transport> transport) {
    const Topology mesh(axes, transport->rank());
    hal::Device& device = *devices[static_cast<std::size_t>(transport->rank())];
    Session session(device, build().catalog,
                    plan_of([&](Builder& builder) { program(builder, mesh); }, mesh, device.info()), {},
                    {transport.get(), 60});
    body(session, mesh);
  });
}

GroupPlace group_of(const Topology& mesh, AxisSet axes) { return {to_string(axes), mesh.place(axes)}; }

// The k-th element of a rank's input in a round.
float element(int round, int rank, std::int64_t k) {
  return static_cast<float>(100 * round + 10 * rank) + static_cast<float>(k);
}

Floats elements(int round, int rank, std::int64_t count) {
  Floats values;
  for (std::int64_t k = 0; k < count; ++k) values.push_back(element(round, rank, k));
  return values;
}

class OnRanks : public testing::TestWithParam<std::string> {};

// y = (2 gathered) weight + bias, with rows of different numbers, in several rounds.
TEST_P(OnRanks, AllGatherLiesBetweenOrdinaryCalls) {
  const std::vector<std::int64_t> rows{2, 1, 3};
  const auto own = [&](const Topology& mesh) { return rows[static_cast<std::size_t>(mesh.rank())]; };
  on_ranks(
      GetParam(), {{"data", 3}},
      [&](Builder& builder, const Topology& mesh) {
        const Tensor x = builder.input("x", {DType::f32, {own(mesh), 2}}, Role::input);
        const Tensor weight = builder.input("weight", {DType::f32, {2, 2}}, Role::parameter);
        const Tensor all =
            all_gather(kernels::scale(x, 2), group_of(mesh, AxisName::data), {4, 2, 6}, {6, 2});
        give(builder, kernels::scale(kernels::matmul(all, weight), 0.5), "y");
      },
      [&](Session& session, const Topology& mesh) {
        write(session, "weight", {0, 1, 1, 0});  // exchanges the columns
        for (int round = 0; round < 3; ++round) {
          if (round < 2)
            write(session, "x", elements(round, mesh.rank(), own(mesh) * 2));  // it stays for round 2
          session.run(Step::evaluate);
          session.wait();
          Floats want;
          for (int rank = 0; rank < 3; ++rank)
            for (std::int64_t row = 0; row < rows[static_cast<std::size_t>(rank)]; ++row)
              for (const std::int64_t column : {1, 0})
                want.push_back(element(std::min(round, 1), rank, row * 2 + column));
          EXPECT_EQ(read(session, "y"), want) << "rank " << mesh.rank() << ", round " << round;
        }
      });
}

// What comes from an all-to-all of different sizes goes around by a shift at once, and then through a call.
TEST_P(OnRanks, CollectivesFollowOneAnother) {
  const std::vector<std::int64_t> sizes{1, 0, 3, 2, 4, 0, 2, 1, 2};  // of 3 places; each gets 5
  const auto size = [&](int from, int to) { return sizes[static_cast<std::size_t>(from * 3 + to)]; };
  const auto sent = [&](int rank) { return size(rank, 0) + size(rank, 1) + size(rank, 2); };
  on_ranks(
      GetParam(), {{"expert", 3}},
      [&](Builder& builder, const Topology& mesh) {
        const Tensor x = builder.input("x", {DType::f32, {sent(mesh.rank())}}, Role::input);
        const GroupPlace group = group_of(mesh, AxisName::expert);
        const Tensor got = all_to_all(x, group, sizes, {5});
        const Tensor around = shift(got, group, 3, 1);
        give(builder, kernels::add(got, kernels::scale(around, 1000)), "y");
      },
      [&](Session& session, const Topology& mesh) {
        const auto received = [&](int round, int rank) {
          Floats values;
          for (int from = 0; from < 3; ++from) {
            std::int64_t at = 0;
            for (int to = 0; to < rank; ++to) at += size(from, to);
            for (std::int64_t k = 0; k < size(from, rank); ++k)
              values.push_back(element(round, from, at + k));
          }
          return values;
        };
        for (int round = 0; round < 2; ++round) {
          write(session, "x", elements(round, mesh.rank(), sent(mesh.rank())));
          session.run(Step::evaluate);
          session.wait();
          Floats want = received(round, mesh.rank());
          const Floats around = received(round, (mesh.rank() + 2) % 3);
          for (std::size_t k = 0; k < want.size(); ++k) want[k] += 1000 * around[k];
          EXPECT_EQ(read(session, "y"), want) << "rank " << mesh.rank() << ", round " << round;
        }
      });
}

// Of a mesh of two axes each collective has its own group; one of a single place copies; views lie in between.
TEST_P(OnRanks, GroupsAreThoseOfTheAxes) {
  on_ranks(
      GetParam(), {{"data", 2}, {"model", 2}},
      [](Builder& builder, const Topology& mesh) {
        const Tensor x = builder.input("x", {DType::f32, {3}}, Role::input);
        const Tensor alone = all_gather(x, group_of(mesh, AxisName::seq), {3}, {1, 3});
        const Tensor flat = kernels::reshape(alone, {3});
        give(builder, all_gather(flat, group_of(mesh, AxisName::data), {3, 3}, {2, 3}), "of data");
        give(builder, shift(flat, group_of(mesh, AxisName::model), 2, 1), "of model");
        const AxisSet both = AxisSet(AxisName::data) | AxisName::model;
        give(builder, all_gather(flat, group_of(mesh, both), {0, 3, 3, 0}, {6}), "of both");
      },
      [](Session& session, const Topology& mesh) {
        const int rank = mesh.rank();
        write(session, "x", elements(0, rank, 3));
        session.run(Step::evaluate);
        session.wait();
        const auto joined = [](int a, int b) {
          Floats values = elements(0, a, 3);
          const Floats more = elements(0, b, 3);
          values.insert(values.end(), more.begin(), more.end());
          return values;
        };
        EXPECT_EQ(read(session, "of data"), joined(rank % 2, rank % 2 + 2));
        EXPECT_EQ(read(session, "of model"), elements(0, rank ^ 1, 3));
        EXPECT_EQ(read(session, "of both"), joined(1, 2));
      });
}

INSTANTIATE_TEST_SUITE_P(Devices, OnRanks, testing::ValuesIn(computing_devices()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

void write_gather(Builder& builder, const Topology& mesh) {
  const Tensor x = builder.input("x", {DType::f32, {3}}, Role::input);
  give(builder, all_gather(kernels::scale(x, 1), group_of(mesh, AxisName::data), {3, 3}, {6}), "y");
}

const std::vector<MeshAxis> kTwo{{"data", 2}};

// A planted fault: one rank puts its values into the program in another order. The comparison must see it.
TEST(SessionOfRanks, WrongValuesOfOneRankAreSeenByAll) {
  on_ranks("cpu", kTwo, write_gather, [](Session& session, const Topology& mesh) {
    write(session, "x", mesh.rank() == 0 ? elements(0, 0, 3) : Floats{12, 11, 10});
    session.run(Step::evaluate);
    session.wait();
    EXPECT_NE(read(session, "y"), (Floats{0, 1, 2, 10, 11, 12}));
    EXPECT_EQ(read(session, "y"), (Floats{0, 1, 2, 12, 11, 10}));
  });
}

TEST(SessionOfRanks, ARankThatDoesNotRunIsNamed) {
  const auto body = [](Session& session, const Topology& mesh) {
    write(session, "x", elements(0, mesh.rank(), 3));
    if (mesh.rank() == 0) session.run(Step::evaluate);
  };
  EXPECT_THAT(message_of([&] { on_ranks("cpu", kTwo, write_gather, body); }),
              testing::AllOf(HasSubstr("all_gather of decoder"), HasSubstr("rank 1")));
}

// What a session of rank `rank` says to this transport.
std::string refusal(Transport* transport, int rank) {
  const auto device = open("cpu");
  const Topology mesh(kTwo, rank);
  return message_of([&] {
    Session(*device, build().catalog,
            plan_of([&](Builder& builder) { write_gather(builder, mesh); }, mesh, device->info()), {},
            {transport});
  });
}

TEST(SessionOfRanks, NeedsTheTransportOfItsMesh) {
  EXPECT_EQ(
      refusal(nullptr, 0),
      "session, program 'eval': a program with collectives needs a transport to the other ranks (it is for "
      "rank 0 of 2); found none");
  const auto three = backends::threads::make_transports(3);
  EXPECT_EQ(
      refusal(three[0].get(), 0),
      "session, program 'eval': the transport must be that of the plan's mesh data=2, of rank 0 of 2; found "
      "rank 0 of 3");
  const auto two = backends::threads::make_transports(2);
  EXPECT_EQ(
      refusal(two[1].get(), 0),
      "session, program 'eval': the transport must be that of the plan's mesh data=2, of rank 0 of 2; found "
      "rank 1 of 2");
  EXPECT_EQ(refusal(two[1].get(), 1), "no error");
}

TEST(SessionOfRanks, RefusesWhatItCannotDo) {
  const auto device = open("cpu");
  const auto transports = backends::threads::make_transports(2);
  const Topology mesh(kTwo, 1);
  const auto planned = [&](const Topology& written_for) {
    return plan_of([&](Builder& builder) { write_gather(builder, written_for); }, mesh, device->info());
  };
  const Ranks ranks{transports[1].get()};
  EXPECT_EQ(
      message_of([&] { Session(*device, build().catalog, planned(Topology(kTwo, 0)), {}, ranks); }),
      "session, all_gather in decoder: the place must be that of rank 1 in the mesh data=2, 1; found 0");
  Session session(*device, build().catalog, planned(mesh), {}, ranks);
  EXPECT_EQ(message_of([&] { session.run_timed(Step::evaluate); }),
            "session, program 'eval': must have no collectives, to be timed call by call; found some");
  Plan with_host = planned(mesh);
  with_host.host.blocks.push_back({"host 0", true, 256});
  if (!device->host()) return;
  EXPECT_EQ(message_of([&] { Session(*device, build().catalog, std::move(with_host), {}, ranks); }),
            "session, program 'eval': a plan with collectives must have no programs of the host; found some");
}

}  // namespace
}  // namespace meshloom::trainer
