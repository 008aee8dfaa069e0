// The recipe `tiny` for a few steps, on any device.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "tests/trainer/run/binary.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/corpus.h"

namespace meshloom::trainer {

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::set<std::string>> variants;  // by op
};

struct Edits {
  std::string variant = {};        // of every call
  std::string from = {}, to = {};  // classes of the model that are replaced
};

class World {
 public:
  World();

  Trained train(const std::string& selector, int steps, const Edits& edits = {});
  // Why the backend has no device here; "" = it has.
  std::string why_none(const std::string& backend) const;

  hal::Registry registry;
  kernels::Catalog catalog;

 private:
  layers::ClassTable classes_;
  tests::Scratch scratch_;
  Corpus corpus_;
};

}  // namespace meshloom::trainer
