// How parameters start. An initialiser is a config and a pure function at once.
#pragma once

#include <cstdint>

#include "kernels/program/types.h"
#include "layers/config/config.h"
#include "layers/random.h"

namespace meshloom::layers {

struct InitArgs {
  Key key;               // of the parameter: the run's seed folded along its path
  kernels::Shape shape;  // matrices are (out, in)
  std::int64_t depth;    // layers in the stack around the parameter; 1 outside of one

  std::int64_t fan_in() const { return shape.back(); }
};

struct Initializer : Config {
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
  double value = 0;

  Constant() = default;
  explicit Constant(double v) : value(v) {}
  void fields(FieldVisitor& v) override { v("value", value); }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

struct Normal : ConfigOf<Normal, Initializer> {
  static constexpr std::string_view kName = "Normal";
  double std = 0.02;

  void fields(FieldVisitor& v) override { v("std", std); }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

// std / sqrt(2 depth): for projections that write into the residual stream, twice per layer (Radford et al.,
// 2019).
struct DepthScaledNormal : ConfigOf<DepthScaledNormal, Initializer> {
  static constexpr std::string_view kName = "DepthScaledNormal";
  double std = 0.02;

  void fields(FieldVisitor& v) override { v("std", std); }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

// gain / sqrt(fan in): keeps the variance of what it is multiplied with.
struct FanInNormal : ConfigOf<FanInNormal, Initializer> {
  static constexpr std::string_view kName = "FanInNormal";
  double gain = 1;

  void fields(FieldVisitor& v) override { v("gain", gain); }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

// Normal, drawn again until within `cut` standard deviations.
struct TruncatedNormal : ConfigOf<TruncatedNormal, Initializer> {
  static constexpr std::string_view kName = "TruncatedNormal";
  double std = 0.02;
  double cut = 2;

  void fields(FieldVisitor& v) override {
    v("std", std);
    v("cut", cut);
  }
  void fill_range(const InitArgs& args, std::int64_t begin, std::int64_t count, float* into) const override;
};

}  // namespace meshloom::layers
