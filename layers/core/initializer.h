// Initial values of parameters. An initialiser is both a config and a pure function.
#pragma once

#include <cstdint>

#include "kernels/program/types.h"
#include "layers/config/config.h"
#include "layers/core/random.h"

namespace meshloom::layers {

struct InitArgs {
  Key key;               // the run's seed with the parameter's path folded in
  kernels::Shape shape;  // of a matrix (output, input)
  std::int64_t depth;    // the number of layers of the stack around the parameter; 1 outside of a stack

  std::int64_t fan_in() const { return shape.back(); }
};

struct Initializer : Config {
  static constexpr std::string_view kAbout = "How a parameter is initialised.";
  // Writes elements [begin, begin + count) of elements(args.shape). An element does not depend on the range in which it
  // is asked for: any division into ranges gives the same bits.
  virtual void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count,
                          float* into) const = 0;
  void fill(const InitArgs& args, float* into) const {
    fill_range(args, 0, kernels::elements(args.shape), into);
  }
};

struct Constant : ConfigOf<Constant, Initializer> {
  static constexpr std::string_view kName = "Constant";
  static constexpr std::string_view kAbout = "Every element has the same value.";
  double value = 0;

  Constant() = default;
  explicit Constant(double v) : value(v) {}
  void fields(FieldVisitor& v) override { v("value", value, {"The value of every element."}); }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

struct Normal : ConfigOf<Normal, Initializer> {
  static constexpr std::string_view kName = "Normal";
  static constexpr std::string_view kAbout = "Normally distributed with mean 0.";
  double std = 0.02;

  void fields(FieldVisitor& v) override {
    v("std", std, {"The standard deviation.", at_least(0), means("standard deviation that is drawn with")});
  }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

// A standard deviation of std / sqrt(2 depth), for projections into the residual stream, of which a layer has two
// (Radford et al., 2019).
struct DepthScaledNormal : ConfigOf<DepthScaledNormal, Initializer> {
  static constexpr std::string_view kName = "DepthScaledNormal";
  static constexpr std::string_view kAbout =
      "Normally distributed with std / sqrt(2 x layers), for projections into the residual stream (Radford "
      "et "
      "al., 2019).";
  double std = 0.02;

  void fields(FieldVisitor& v) override {
    v("std", std,
      {"The standard deviation before it is divided by sqrt(2 x layers of the stack).", at_least(0),
       means("standard deviation that is drawn with")});
  }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

// A standard deviation of gain / sqrt(fan_in): a product with it keeps the variance of its input at a gain of 1.
struct FanInNormal : ConfigOf<FanInNormal, Initializer> {
  static constexpr std::string_view kName = "FanInNormal";
  static constexpr std::string_view kAbout =
      "Normally distributed with a standard deviation of gain / sqrt(inputs).";
  double gain = 1;

  void fields(FieldVisitor& v) override {
    v("gain", gain, {"The standard deviation times sqrt(inputs).", at_least(0)});
  }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

// Normally distributed; an element is drawn again until it is within `cut` standard deviations of 0.
struct TruncatedNormal : ConfigOf<TruncatedNormal, Initializer> {
  static constexpr std::string_view kName = "TruncatedNormal";
  static constexpr std::string_view kAbout =
      "Normally distributed; elements farther than `cut` standard deviations from 0 are drawn again.";
  double std = 0.02;
  double cut = 2;

  void fields(FieldVisitor& v) override {
    v("std", std,
      {"The standard deviation before the tails are cut off.", at_least(0),
       means("standard deviation that is drawn with")});
    v("cut", cut, {"The largest distance of an element from 0, in standard deviations.", at_least(0.1)});
  }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

}  // namespace meshloom::layers
