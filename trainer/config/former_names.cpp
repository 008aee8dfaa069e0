#include "trainer/config/former_names.h"

#include <algorithm>

namespace meshloom::trainer {
namespace {

using enum FormerName::Kind;

// Each rename adds a line. `current` is today's name: if something is renamed again, its older lines change too.
constexpr FormerName kFormerNames[] = {
    {config_class, "BiasBalance", "LossFreeBalancing"},
    {config_class, "LoadBalance", "LoadBalancingLoss"},
    {config_class, "NormedProjection", "QKNormProjection"},
    {config_class, "ParameterRule", "ParameterGroup"},
    {config_class, "RouterZ", "RouterZLoss"},
    {config_class, "ScaledRotaryPosition", "Llama3RotaryPosition"},
    {config_class, "SharingAttention", "CrossLayerAttention"},
    {config_class, "SlicedLoss", "ChunkedLoss"},
    {config_class, "Treat", "AddParameterGroup"},
    {config_class, "VariedStack", "HeterogeneousStack"},
};

}  // namespace

std::span<const FormerName> former_names() { return kFormerNames; }

std::string_view current_name(FormerName::Kind kind, std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFormerNames), std::end(kFormerNames),
                   [&](const FormerName& one) { return one.kind == kind && one.old_name == name; });
  return found == std::end(kFormerNames) ? name : found->current;
}

void add_former_class_names(layers::ClassTable& classes) {
  for (const FormerName& one : kFormerNames)
    if (one.kind == config_class) classes.add_former_name(one.old_name, one.current);
}

}  // namespace meshloom::trainer
