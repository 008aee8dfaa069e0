#include "tests/trainer/compose/distributed/mesh_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <span>

#include "backends/threads/backend.h"
#include "hal/wrappers/slowed_device.h"
#include "trainer/mesh/layout.h"

namespace meshloom::tests {
namespace {

using trainer::AxisName;
using trainer::Layout;
using trainer::Plan;
using trainer::Session;
using trainer::Topology;

constexpr std::int64_t kVocabulary = 19;

// The values that a run keeps, put together from the parts of the ranks that are the first to hold them.
void collect(Session& session, Outcome& outcome) {
  const Plan& plan = session.plan();
  for (const auto& [name, type] : plan.persistent_types) {
    if (type.dtype != kernels::DType::f32 || name.starts_with("grad/") || name.starts_with("accumulate/"))
      continue;
    Layout layout = plan.layout(name, plan.mesh.rank());
    layout.first = layout.first && (plan.divided.count(name) > 0 || plan.mesh.rank() == 0) &&
                   name.find('@') == std::string::npos && !name.starts_with("pipe/");
    if (!layout.first || layout.whole.dtype != kernels::DType::f32) continue;
    std::vector<float> part(static_cast<std::size_t>(layout.range.count));
    session.read(name, std::as_writable_bytes(std::span(part)));
    std::vector<float>& whole = outcome.values[name];
    whole.resize(static_cast<std::size_t>(layout.whole.elements()), std::nanf(""));
    trainer::for_runs(layout, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      std::copy_n(part.begin() + from, count, whole.begin() + to);
    });
  }
}

}  // namespace

trainer::ComposeOptions options_of(const Job& job, const std::vector<trainer::MeshAxis>& mesh, int rank) {
  trainer::ComposeOptions options = small_options();
  options.batch = 16;
  options.accumulation = job.accumulation;
  options.schedule = job.schedule;
  options.documents = job.documents;
  options.source = job.source;
  options.dtype = job.dtype;
  options.remat = job.remat;
  options.outer = job.outer;
  options.mesh = mesh;
  options.shares = job.shares;
  options.attention = job.attention;
  options.sequence_order = job.order;
  options.gradient_dtype = job.gradient_dtype;
  options.parameter_copies = job.parameter_copies;
  if (job.sequence > 0) options.sequence = job.sequence;
  options.rank = rank;
  return options;
}

Outcome run(const Job& job, const std::vector<trainer::MeshAxis>& mesh) {
  Outcome outcome;
  const int ranks = Topology(mesh).ranks();
  outcome.plans.resize(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<hal::Device>> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(build().registry.open("cpu"));
  for (const auto& [rank, factor] : job.slow) {
    std::unique_ptr<hal::Device>& device = devices[static_cast<std::size_t>(rank)];
    device = hal::slowed(std::move(device), factor);
  }
  std::mutex mutex;
  backends::threads::run_ranks(ranks, [&](std::unique_ptr<hal::Transport> plain) {
    const std::unique_ptr<hal::Transport> transport =
        job.wrap ? job.wrap(std::move(plain)) : std::move(plain);
    const int rank = transport->rank();
    hal::Device& device = *devices[static_cast<std::size_t>(rank)];
    const trainer::ComposeOptions options = options_of(job, mesh, rank);
    Plan plan = trainer::compose_training(*job.model, *job.learner, options, catalog(), device.info());
    if (job.fault) job.fault(plan);
    Session session(device, catalog(), std::move(plan), {}, {transport.get(), 60.0, job.overlap});
    trainer::initialize(session, 1);
    const std::int64_t rows = options.rows();
    std::vector<std::vector<float>> metrics;
    for (int step = 0; step < job.steps; ++step) {
      const float rate = 0.01F;
      session.write("lr", std::as_bytes(std::span(&rate, 1)));
      for (const trainer::StepAction& action : session.plan().steps.schedule) {
        if (action.kind != trainer::StepAction::Kind::run) {
          session.transfer(session.plan().steps.transfers.at(static_cast<std::size_t>(action.transfer)));
          continue;
        }
        const bool piped = action.step == trainer::Step::forward;
        if (action.micro_batch >= 0 &&
            (piped || action.step == trainer::Step::train || action.step == trainer::Step::accumulate)) {
          Batch batch = random_batch(rows, options.sequence, kVocabulary,
                                     static_cast<std::uint64_t>(100 * step + action.micro_batch));
          if (job.all_targets)
            for (std::int32_t& target : batch.targets) target = std::max(target, 0);
          // The session keeps this rank's part.
          const auto write = [&](std::string name, const std::vector<std::int32_t>& all) {
            if (piped) name = trainer::name_in_slot(name, action.chunk, action.slot);
            if (session.plan().persistent.count(name)) session.write(name, std::as_bytes(std::span(all)));
          };
          write("tokens", batch.tokens);
          write("targets", batch.targets);
          if (job.documents) {  // two a row
            std::vector<std::int32_t> segments, positions;
            for (std::int64_t i = 0; i < rows * options.sequence; ++i) {
              const std::int64_t in_row = i % options.sequence, half = options.sequence / 2;
              segments.push_back(in_row < half ? 1 : 2);
              positions.push_back(static_cast<std::int32_t>(in_row < half ? in_row : in_row - half));
            }
            write("segments", segments);
            write("positions", positions);
          }
          if (job.source > 0) {
            const Batch source =
                random_batch(rows, job.source, kVocabulary, static_cast<std::uint64_t>(step));
            write("source", source.tokens);
            write("source_segments", std::vector<std::int32_t>(source.tokens.size(), 1));
            write("segments", std::vector<std::int32_t>(batch.tokens.size(), 1));
          }
          std::string rng = "rng_state";
          if (piped) rng = trainer::name_in_slot(rng, action.chunk, action.slot);
          const std::vector<std::int32_t> state{1, step,
                                                static_cast<std::int32_t>(action.micro_batch * rows)};
          if (session.plan().persistent.count(rng)) session.write(rng, std::as_bytes(std::span(state)));
        }
        session.run(action.program());
      }
      session.finish_transfers();
      for (const trainer::OuterPart& part : session.plan().steps.outer)
        if (part.last(step + 1) == step + 1) session.run(part.program);
      std::vector<float> row(session.plan().metrics.at("metrics").size());
      session.read("metrics", std::as_writable_bytes(std::span(row)));
      metrics.push_back(row);
    }
    const std::lock_guard lock(mutex);
    // Islands have losses of their own: those of the first are taken.
    const bool alike = session.plan().mesh.size(AxisName::islands) == 1;
    if (alike ? outcome.metrics.empty() : rank == 0) outcome.metrics = metrics;
    if (alike) {
      EXPECT_EQ(metrics, outcome.metrics) << "rank " << rank << " has other metrics than another rank";
    }
    collect(session, outcome);
    outcome.plans[static_cast<std::size_t>(rank)] = session.plan();
  });
  return outcome;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 1e-30, apart = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    apart = std::max(apart, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return apart / largest;
}

void expect_equal(const Outcome& got, const Outcome& want, double tolerance,
                  const std::vector<std::string>& rounding) {
  ASSERT_EQ(got.metrics.size(), want.metrics.size());
  for (std::size_t step = 0; step < want.metrics.size(); ++step)
    for (std::size_t i = 0; i < want.metrics[step].size(); ++i)
      EXPECT_NEAR(got.metrics[step][i], want.metrics[step][i],
                  kLosses * std::abs(want.metrics[step][i]) + 1e-6)
          << "step " << step << ", " << want.plans[0].metrics.at("metrics")[i];
  for (const auto& [name, values] : want.values) {
    ASSERT_TRUE(got.values.count(name)) << name;
    // A bias of all keys changes no softmax: its gradient is nothing but rounding.
    if (name.ends_with("k_proj/bias") ||
        std::any_of(rounding.begin(), rounding.end(), [&](const auto& end) { return name.ends_with(end); }))
      continue;
    EXPECT_LE(difference(got.values.at(name), values), tolerance) << name;
  }
}

void check(const Job& job, double tolerance, const Meshes& meshes) {
  Job alone = job;
  alone.shares.clear();
  const Outcome one = run(alone, {});
  for (const auto& mesh : meshes) {
    SCOPED_TRACE(Topology(mesh).text());
    expect_equal(run(job, mesh), one, tolerance);
  }
}

layers::CausalLM::Config untied_llama() {
  return layers::llama_config({.vocab = 19, .dim = 16, .layers = 4, .heads = 4, .kv_heads = 2, .ffn = 24});
}

}  // namespace meshloom::tests
