// Merging adapters and quantised weights into a plain model: the config of that model, and how its parameters are
// computed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/program/types.h"
#include "layers/config/config.h"

namespace meshloom::layers {

// How one parameter of the merged model is computed. It is done on the host, in double precision.
struct Merge {
  std::string target;    // the path of the parameter in the merged model
  kernels::Shape shape;  // of the target
  std::vector<std::string>
      sources;  // the parameters to read; the target may be one of them, as earlier merges leave it
  // (values of each source, integers as numbers) -> values of the target
  std::function<std::vector<float>(const std::vector<std::vector<float>>& sources)> merge;
};

// A config that can be merged into a plain one.
class MergeableConfig {
 public:
  virtual ~MergeableConfig() = default;
  // What takes its place in the merged model.
  virtual std::unique_ptr<Config> merged_config() const = 0;
};
// The module of such a config, if its parameters change by merging.
class Mergeable {
 public:
  virtual ~Mergeable() = default;
  // Throws Error if it cannot be merged.
  virtual Merge merge() const = 0;
};

struct MergedModel {
  std::unique_ptr<Config> model;  // without adapters and quantised weights
  std::vector<Merge> merges;      // in the order in which they are to be done
  int adapters = 0;               // how many of the merges are of adapters
};
MergedModel merge_adapters(const Config& model);

}  // namespace meshloom::layers
