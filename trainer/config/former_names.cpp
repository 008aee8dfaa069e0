#include "trainer/config/former_names.h"

#include <algorithm>
#include <cctype>

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
    {op, "combine_rows", "moe_combine"},
    {op, "dot_rows", "row_dot"},
    {op, "group_rows", "expert_groups"},
    {op, "join_features", "concat"},
    {op, "join_rows", "concat_rows"},
    {op, "limit_groups", "expert_capacity"},
    {op, "put", "scatter_add"},
    {op, "round_gradient", "quantize_dequantize_grad"},
    {op, "round_rows", "quantize_dequantize"},
    {op, "split_rows", "split"},
    {op, "spread_rows", "moe_dispatch"},
    {op, "take", "gather"},
    {op, "take_features", "slice_features"},
};

}  // namespace

std::span<const FormerName> former_names() { return kFormerNames; }

std::string_view current_name(FormerName::Kind kind, std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFormerNames), std::end(kFormerNames),
                   [&](const FormerName& one) { return one.kind == kind && one.old_name == name; });
  return found == std::end(kFormerNames) ? name : found->current;
}

std::string current_op_pattern(std::string_view pattern) {
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::string current;
  for (std::size_t at = 0; at < pattern.size();) {
    std::size_t end = at;
    while (end < pattern.size() && in_name(pattern[end])) ++end;
    if (end == at)
      current += pattern[end++];
    else
      current += current_name(op, pattern.substr(at, end - at));
    at = end;
  }
  return current;
}

void add_former_class_names(layers::ClassTable& classes) {
  for (const FormerName& one : kFormerNames)
    if (one.kind == config_class) classes.add_former_name(one.old_name, one.current);
}

}  // namespace meshloom::trainer
