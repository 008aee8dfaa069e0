// Features with eight variants each. A variant is one line of text, the snippet, and the same thing built by
// hand.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "tests/complexity/hosts.h"

namespace meshloom::tests {

constexpr int kVariants = 8;

struct FeatureVariant {
  std::string snippet;  // modifiers, as --modify and mesh rules take them
  // The trees that the snippet should give.
  std::function<void(Parts&)> parts = [](Parts&) {};
  std::function<void(trainer::TrainerConfig&)> recipe = [](trainer::TrainerConfig&) {};
};

struct Feature {
  std::string name;
  std::vector<FeatureVariant> variants;  // kVariants
  bool same_numbers = false;             // as the host without the feature: it only changes who computes them
  bool inference = false;  // it shows in the programs that keep what they computed of earlier tokens
};

std::vector<Feature> features();
// What comes from outside: norms, kernels and backends that this folder adds, as a plug-in would.
void add_feature_classes(layers::ClassTable& classes);
void add_feature_kernels(kernels::Catalog& catalog);
void add_feature_backends(hal::Registry& registry);

}  // namespace meshloom::tests
