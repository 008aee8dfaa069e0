// How parameters start. An initialiser is a config and a pure function at once.
#pragma once

#include <cstdint>

#include "kernels/program/types.h"
#include "layers/config/config.h"
#include "layers/core/random.h"

namespace meshloom::layers {

struct InitArgs {
  Key key;               // of the parameter: the run's seed folded along its path
  kernels::Shape shape;  // matrices are (out, in)
  std::int64_t depth;    // layers in the stack around the parameter; 1 outside of one

  std::int64_t fan_in() const { return shape.back(); }
};

struct Initializer : Config {
  static constexpr std::string_view kAbout = "How a parameter starts.";
  // Writes elements [begin, begin + count) of elements(args.shape), each whatever its neighbours are: any
  // division into ranges gives the same bits.
  virtual void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count,
                          float* into) const = 0;
  void fill(const InitArgs& args, float* into) const {
    fill_range(args, 0, kernels::elements(args.shape), into);
  }
};

struct Constant : ConfigOf<Constant, Initializer> {
  static constexpr std::string_view kName = "Constant";
  static constexpr std::string_view kAbout = "Every element the same.";
  double value = 0;

  Constant() = default;
  explicit Constant(double v) : value(v) {}
  void fields(FieldVisitor& v) override { v("value", value, {"What every element starts as."}); }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

struct Normal : ConfigOf<Normal, Initializer> {
  static constexpr std::string_view kName = "Normal";
  static constexpr std::string_view kAbout = "Normally distributed, whatever the shape.";
  double std = 0.02;

  void fields(FieldVisitor& v) override {
    v("std", std,
      {"The standard deviation; its mean is 0.", at_least(0),
       means("standard deviation that is drawn with")});
  }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

// std / sqrt(2 depth): for projections that write into the residual stream, twice per layer (Radford et al.,
// 2019).
struct DepthScaledNormal : ConfigOf<DepthScaledNormal, Initializer> {
  static constexpr std::string_view kName = "DepthScaledNormal";
  static constexpr std::string_view kAbout =
      "Normally distributed, less by sqrt(2 x layers): for what writes into the residual stream (Radford et "
      "al., "
      "2019).";
  double std = 0.02;

  void fields(FieldVisitor& v) override {
    v("std", std,
      {"The standard deviation before it is divided by sqrt(2 x layers of the stack).", at_least(0),
       means("standard deviation that is drawn with")});
  }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

// gain / sqrt(fan in): keeps the variance of what it is multiplied with.
struct FanInNormal : ConfigOf<FanInNormal, Initializer> {
  static constexpr std::string_view kName = "FanInNormal";
  static constexpr std::string_view kAbout =
      "Normally distributed with a standard deviation of gain / sqrt(inputs).";
  double gain = 1;

  void fields(FieldVisitor& v) override {
    v("gain", gain, {"The standard deviation times the root of the inputs' number.", at_least(0)});
  }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

// Normal, drawn again until within `cut` standard deviations.
struct TruncatedNormal : ConfigOf<TruncatedNormal, Initializer> {
  static constexpr std::string_view kName = "TruncatedNormal";
  static constexpr std::string_view kAbout =
      "Normally distributed, drawn again until within `cut` standard deviations.";
  double std = 0.02;
  double cut = 2;

  void fields(FieldVisitor& v) override {
    v("std", std,
      {"The standard deviation before the tails are cut off.", at_least(0),
       means("standard deviation that is drawn with")});
    v("cut", cut, {"How many standard deviations from 0 an element is at most.", at_least(0.1)});
  }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

}  // namespace meshloom::layers
