// Compares every optimizer with its formulas in plain loops in double precision: several steps, a skipped
// one, weight decay, factors of a parameter group, averages. Tests schedules at their corners.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "layers/config/tree.h"
#include "tests/trainer/learner/support.h"
#include "trainer/config/trainer_config.h"
#include "trainer/learner/schedules.h"

namespace meshloom::trainer {
namespace {

using namespace tests;

TEST(Optimizers, Sgd) {
  for (const ParameterShape& shape : kShapes)
    for (const bool nesterov : {false, true}) {
      expect_follows(
          std::string("Sgd{peak_learning_rate=1 momentum=0.8 weight_decay=0.1 nesterov=") +
              (nesterov ? "true}" : "false}"),
          shape,
          [&](Doubles& p, auto& slots, const Doubles& g, double rate, double, const ParameterShape& s) {
            Doubles& m = slot(slots, "m", p.size());
            for (std::size_t i = 0; i < p.size(); ++i) {
              const double gradient = g[i] + decay_of(s, 0.1) * p[i];
              m[i] = 0.8 * m[i] + gradient;
              p[i] -= rate * (nesterov ? gradient + 0.8 * m[i] : m[i]);
            }
          });
    }
  expect_follows("Sgd{peak_learning_rate=1 momentum=0}", {4, 2},
                 [](Doubles& p, auto&, const Doubles& g, double rate, double, const ParameterShape&) {
                   for (std::size_t i = 0; i < p.size(); ++i) p[i] -= rate * g[i];
                 });
}

TEST(Optimizers, Lion) {
  for (const ParameterShape& shape : kShapes)
    expect_follows(
        "Lion{peak_learning_rate=1 weight_decay=0.2}", shape,
        [](Doubles& p, auto& slots, const Doubles& g, double rate, double, const ParameterShape& s) {
          Doubles& m = slot(slots, "m", p.size());
          for (std::size_t i = 0; i < p.size(); ++i) {
            const double u = 0.9 * m[i] + (1 - 0.9) * g[i];
            p[i] -= rate * ((u > 0 ? 1 : u < 0 ? -1 : 0) + decay_of(s, 0.2) * p[i]);
            m[i] = 0.99 * m[i] + (1 - 0.99) * g[i];
          }
        });
}

void adam(Doubles& p, std::map<std::string, Doubles>& slots, const Doubles& g, double rate, double step) {
  Doubles &m = slot(slots, "m", p.size()), &v = slot(slots, "v", p.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    m[i] = 0.9 * m[i] + 0.1 * g[i];
    v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
    p[i] -= rate * (m[i] / (1 - std::pow(0.9, step))) / (std::sqrt(v[i] / (1 - std::pow(0.95, step))) + 1e-8);
  }
}

TEST(Optimizers, AdamInThreeWaysOfDecay) {
  for (const ParameterShape& shape : kShapes) {
    expect_follows(
        "AdamW{peak_learning_rate=0.5 weight_decay=0.2}", shape,
        [](Doubles& p, auto& slots, const Doubles& g, double rate, double step, const ParameterShape& s) {
          const Doubles before = p;
          adam(p, slots, g, rate, step);
          for (std::size_t i = 0; i < p.size(); ++i) p[i] -= rate * decay_of(s, 0.2) * before[i];
        });
    expect_follows(
        "Adam{peak_learning_rate=0.5 weight_decay=0.2}", shape,
        [](Doubles& p, auto& slots, const Doubles& g, double rate, double step, const ParameterShape& s) {
          Doubles penalised = g;
          for (std::size_t i = 0; i < p.size(); ++i) penalised[i] += decay_of(s, 0.2) * p[i];
          adam(p, slots, penalised, rate, step);
        },
        1e-4);
    expect_follows(
        "AdamWIndependent{peak_learning_rate=0.5 weight_decay=0.2}", shape,
        [](Doubles& p, auto& slots, const Doubles& g, double rate, double step, const ParameterShape& s) {
          const Doubles before = p;
          adam(p, slots, g, rate, step);
          for (std::size_t i = 0; i < p.size(); ++i) p[i] -= rate / 0.5 * decay_of(s, 0.2) * before[i];
        });
  }
}

double mean_square(const Doubles& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return sum / static_cast<double>(x.size());
}

TEST(Optimizers, Adafactor) {
  for (const ParameterShape& shape : kShapes)
    for (const bool relative : {true, false})
      expect_follows(
          std::string("Adafactor{peak_learning_rate=1 weight_decay=0.1 clip_threshold=0.7 scale_parameter=") +
              (relative ? "true}" : "false}"),
          shape,
          [&](Doubles& p, auto& slots, const Doubles& g, double rate, double step, const ParameterShape& s) {
            const double rest = std::pow(step, -0.8);
            Doubles u = g;
            if (s.columns) {
              const auto rows = static_cast<std::size_t>(s.rows),
                         columns = static_cast<std::size_t>(s.columns);
              Doubles &r = slot(slots, "row", rows), &c = slot(slots, "column", columns);
              for (double& x : r) x *= 1 - rest;
              for (double& x : c) x *= 1 - rest;
              for (std::size_t i = 0; i < p.size(); ++i) {
                r[i / columns] += rest * (g[i] * g[i] + 1e-30) / static_cast<double>(columns);
                c[i % columns] += rest * (g[i] * g[i] + 1e-30) / static_cast<double>(rows);
              }
              double mean = 0;
              for (double x : r) mean += x / static_cast<double>(rows);
              for (std::size_t i = 0; i < p.size(); ++i)
                u[i] /= std::sqrt(r[i / columns] * c[i % columns] / mean);
            } else {
              Doubles& v = slot(slots, "v", p.size());
              for (std::size_t i = 0; i < p.size(); ++i) {
                v[i] = (1 - rest) * v[i] + rest * (g[i] * g[i] + 1e-30);
                u[i] /= std::sqrt(v[i]);
              }
            }
            const double size = relative ? std::max(1e-3, std::sqrt(mean_square(p))) : 1;
            const double clip = std::max(1.0, std::sqrt(mean_square(u)) / 0.7);
            for (std::size_t i = 0; i < p.size(); ++i)
              p[i] -= rate * (u[i] / clip * size + decay_of(s, 0.1) * p[i]);
          });
}

TEST(Optimizers, Muon) {
  for (const ParameterShape& shape : {ParameterShape{5, 3}, ParameterShape{3, 7}, ParameterShape{4, 4}})
    expect_follows(
        "Muon{peak_learning_rate=1 momentum=0.9 weight_decay=0.1}", shape,
        [](Doubles& p, auto& slots, const Doubles& g, double rate, double, const ParameterShape& s) {
          Doubles& m = slot(slots, "m", p.size());
          Doubles x(p.size());
          for (std::size_t i = 0; i < p.size(); ++i) {
            m[i] = 0.9 * m[i] + g[i];
            x[i] = g[i] + 0.9 * m[i];
          }
          const double norm = std::sqrt(mean_square(x) * static_cast<double>(x.size())) + 1e-7;
          for (double& v : x) v /= norm;
          const auto rows = static_cast<std::size_t>(s.rows), columns = static_cast<std::size_t>(s.columns);
          for (int iteration = 0; iteration < 5; ++iteration) {  // always by X X^T, whatever the shape
            Doubles a(rows * rows, 0), aa(rows * rows, 0), next(p.size());
            for (std::size_t i = 0; i < rows; ++i)
              for (std::size_t j = 0; j < rows; ++j)
                for (std::size_t k = 0; k < columns; ++k)
                  a[i * rows + j] += x[i * columns + k] * x[j * columns + k];
            for (std::size_t i = 0; i < rows; ++i)
              for (std::size_t j = 0; j < rows; ++j)
                for (std::size_t k = 0; k < rows; ++k) aa[i * rows + j] += a[i * rows + k] * a[k * rows + j];
            for (std::size_t i = 0; i < rows; ++i)
              for (std::size_t j = 0; j < columns; ++j) {
                next[i * columns + j] = 3.4445 * x[i * columns + j];
                for (std::size_t k = 0; k < rows; ++k)
                  next[i * columns + j] +=
                      (-4.7750 * a[i * rows + k] + 2.0315 * aa[i * rows + k]) * x[k * columns + j];
              }
            x = next;
          }
          for (std::size_t i = 0; i < p.size(); ++i)
            p[i] -= rate *
                    (0.2 * std::sqrt(static_cast<double>(std::max(s.rows, s.columns))) * x[i] + 0.1 * p[i]);
        },
        1e-4);
  // AdamW updates parameters that are no matrices, and matrices over the vocabulary.
  const Oracle as_adamw = [](Doubles& p, auto& slots, const Doubles& g, double rate, double step,
                             const ParameterShape& s) {
    const Doubles before = p;
    adam(p, slots, g, rate, step);
    for (std::size_t i = 0; i < p.size(); ++i) p[i] -= rate * decay_of(s, 0.1) * before[i];
  };
  expect_follows("Muon{peak_learning_rate=1}", {6, 0}, as_adamw);
  expect_follows("Muon{peak_learning_rate=1}", {6, 3}, as_adamw, kTolerance, "vocab");
}

// What each expert's matrix becomes is what it would become alone.
TEST(Optimizers, ExpertsAreMatricesOfTheirOwn) {
  constexpr std::int64_t kExperts = 3;
  for (const char* text : {"Muon{peak_learning_rate=1}",
                           "Adafactor{peak_learning_rate=1 scale_parameter=false clip_threshold=1e9}"})
    for (const ParameterShape& shape : {ParameterShape{5, 3}, ParameterShape{3, 7}}) {
      SCOPED_TRACE(text);
      const auto learner = parse_learner(text);
      const auto& config = dynamic_cast<const Learner::Config&>(*learner);
      const auto count = static_cast<std::size_t>(shape.rows * shape.columns);
      const Doubles start = random_values(count * kExperts, 1);
      std::vector<GradientStep> steps;
      for (std::uint64_t i = 0; i < 3; ++i)
        steps.push_back({random_values(count * kExperts, 2 + i), 0.01, 1});
      for (double& x : steps[1].gradient)
        x *= 1 + static_cast<double>(&x - steps[1].gradient.data());  // unequal norms
      const Updated together = run_updates(config, {shape.rows, shape.columns, kExperts}, start, steps);
      const auto part = [&](const Doubles& whole, std::size_t expert) {
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(expert * count);
        return Doubles(begin, begin + static_cast<std::ptrdiff_t>(count));
      };
      for (std::size_t expert = 0; expert < kExperts; ++expert) {
        std::vector<GradientStep> own = steps;
        for (GradientStep& step : own) step.gradient = part(step.gradient, expert);
        const Updated alone = run_updates(config, shape, part(start, expert), own);
        const Doubles mine = part(together.parameter, expert);
        for (std::size_t i = 0; i < count; ++i) EXPECT_NEAR(mine[i], alone.parameter[i], 1e-5);
      }
    }
}

TEST(Optimizers, AveragesOfParameters) {
  expect_follows(
      "Sgd{peak_learning_rate=1 momentum=0 ema=Ema{decay=0.6}}", {3, 2},
      [](Doubles& p, auto& slots, const Doubles& g, double rate, double step, const ParameterShape&) {
        Doubles& ema = slot(slots, "ema", p.size());
        for (std::size_t i = 0; i < p.size(); ++i) {
          p[i] -= rate * g[i];
          ema[i] += std::max(0.4, 1 / step) * (p[i] - ema[i]);
        }
      });
}

TEST(Optimizers, ReadBackAndRefuseNonsense) {
  EXPECT_GE(learner_names().size(), 7u);
  for (const std::string& name : learner_names()) {
    const auto config =
        parse_learner(name + "{peak_learning_rate=0.1 schedule=WarmupPolynomial{total_steps=9}}");
    EXPECT_EQ(layers::print(*config), layers::print(*parse_learner(layers::print(*config))));
    EXPECT_NO_THROW(dynamic_cast<const Learner::Config&>(*config).check());
  }
  for (const char* bad :
       {"Sgd{peak_learning_rate=-1}", "Sgd{peak_learning_rate=1 momentum=1}",
        "Sgd{peak_learning_rate=1 momentum=0 nesterov=true}", "Lion{peak_learning_rate=1 beta1=2}",
        "Adafactor{peak_learning_rate=1 eps=0}", "Muon{peak_learning_rate=1 iterations=0}",
        "AdamWIndependent{peak_learning_rate=0}", "AdamW{peak_learning_rate=1 ema=Ema{decay=1}}",
        "AdamW{peak_learning_rate=1 train=some}",
        "AdamW{peak_learning_rate=1 schedule=WarmupPolynomial{total_steps=9 power=0}}",
        "AdamW{peak_learning_rate=1 schedule=WarmupPiecewise{boundaries=[5] factors=[1]}}",
        "AdamW{peak_learning_rate=1 schedule=WarmupPiecewise{boundaries=[5, 5] factors=[1, 2, 3]}}",
        "AdamW{peak_learning_rate=1 schedule=WarmupPiecewise{factors=[x]}}",
        "AdamW{peak_learning_rate=1 schedule=WarmupStableDecay{total_steps=9 decay_steps=9 warmup_steps=1}}"})
    EXPECT_THROW(dynamic_cast<const Learner::Config&>(*parse_learner(bad)).check(), Error) << bad;
}

TEST(Schedules, Corners) {
  const auto at = [](const std::string& text, std::int64_t step) {
    const auto config = parse_learner(text);
    const auto& schedule = dynamic_cast<const Schedule::Config&>(*config);
    schedule.check();
    return schedule.factor(step);
  };
  for (const char* name :
       {"WarmupConstant{warmup_steps=10}", "WarmupPolynomial{warmup_steps=10 total_steps=110}",
        "WarmupInverseSqrt{warmup_steps=10}",
        "WarmupStableDecay{warmup_steps=10 total_steps=110 decay_steps=50}",
        "WarmupPiecewise{warmup_steps=10 boundaries=[20, 30] factors=[1, 0.5, 0.1]}",
        "WarmupCosine{warmup_steps=10 total_steps=110}"}) {
    EXPECT_DOUBLE_EQ(at(name, 1), 0.1) << name;
    EXPECT_DOUBLE_EQ(at(name, 9), 0.9) << name;
    EXPECT_DOUBLE_EQ(at(name, 10), 1.0) << name;
  }
  EXPECT_DOUBLE_EQ(at("WarmupConstant{warmup_steps=0}", 1), 1);
  EXPECT_DOUBLE_EQ(at("WarmupConstant{}", 1000000), 1);
  const std::string line = "WarmupPolynomial{warmup_steps=10 total_steps=110 final_fraction=0.2}";
  EXPECT_DOUBLE_EQ(at(line, 60), 0.6);
  EXPECT_DOUBLE_EQ(at(line, 110), 0.2);
  EXPECT_DOUBLE_EQ(at(line, 999), 0.2);
  EXPECT_DOUBLE_EQ(at("WarmupPolynomial{warmup_steps=0 total_steps=100 power=2}", 50), 0.25);
  EXPECT_DOUBLE_EQ(at("WarmupInverseSqrt{warmup_steps=100}", 400), 0.5);
  const std::string stable =
      "WarmupStableDecay{warmup_steps=10 total_steps=110 decay_steps=50 final_fraction=0.1}";
  EXPECT_DOUBLE_EQ(at(stable, 60), 1);
  EXPECT_NEAR(at(stable, 85), 0.55, 1e-12);
  EXPECT_NEAR(at(stable, 110), 0.1, 1e-12);
  const std::string pieces = "WarmupPiecewise{warmup_steps=10 boundaries=[20, 30] factors=[1, 0.5, 0.1]}";
  EXPECT_DOUBLE_EQ(at(pieces, 19), 1);
  EXPECT_DOUBLE_EQ(at(pieces, 20), 0.5);
  EXPECT_DOUBLE_EQ(at(pieces, 29), 0.5);
  EXPECT_DOUBLE_EQ(at(pieces, 30), 0.1);
}

}  // namespace
}  // namespace meshloom::trainer
