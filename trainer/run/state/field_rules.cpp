#include "trainer/run/state/field_rules.h"

#include <array>

namespace meshloom::trainer {
namespace {

using FieldResume = FieldRule::Resume;

// Of files, the contents are compared instead of their names. Rematerialised values are exact copies.
constexpr std::array kFieldRules{
    FieldRule{"steps", false, FieldResume::free},
    FieldRule{"eval_every", false, FieldResume::free},
    FieldRule{"eval_batches", false, FieldResume::free},
    FieldRule{"checkpoint_every", false, FieldResume::free},
    FieldRule{"keep", false, FieldResume::free},
    FieldRule{"snapshot_seconds", false, FieldResume::free},
    FieldRule{"input.files", true, FieldResume::free},
    FieldRule{"input.eval_files", true, FieldResume::free},
    FieldRule{"input.tokenizer.file", true, FieldResume::free},
    FieldRule{"input.tokenizer.model", true, FieldResume::free},
    FieldRule{"input.tokenizer.config", true, FieldResume::free},
    FieldRule{"input.tokenizer.chat_template", true, FieldResume::free},
    FieldRule{"input.tokenizer.eos_token_ids", false, FieldResume::free},
    FieldRule{"input.chat_template", true, FieldResume::free},
    FieldRule{"input.eval_temperature", false, FieldResume::free},
    FieldRule{"input.chat_time", false, FieldResume::free},
    FieldRule{"device", true, FieldResume::free},
    FieldRule{"memory", true, FieldResume::free},
    FieldRule{"fit", true, FieldResume::free},
    FieldRule{"hardware_rules", true, FieldResume::free},
    FieldRule{"mesh_rules", true, FieldResume::free},
    FieldRule{"remat", true, FieldResume::free},
    FieldRule{"hardware", true, FieldResume::rounding},
    FieldRule{"profile", true, FieldResume::rounding},
    FieldRule{"kernels", true, FieldResume::rounding},
    FieldRule{"mesh.balance", false, FieldResume::free},
    FieldRule{"mesh.islands", false, FieldResume::fixed},
    FieldRule{"mesh.outer", false, FieldResume::fixed},
    FieldRule{"mesh", false, FieldResume::rounding},
    FieldRule{"accumulation", false, FieldResume::rounding},
    FieldRule{"offload_optimizer", false, FieldResume::rounding},
    FieldRule{"optimizer_in_backward", false, FieldResume::rounding},
};
constexpr FieldRule kOtherField{};

}  // namespace

const FieldRule& field_rule(std::string_view path) {
  for (const FieldRule& rule : kFieldRules)
    if (path.starts_with(rule.path) &&
        (path.size() == rule.path.size() || path[rule.path.size()] == '.' || path[rule.path.size()] == '['))
      return rule;
  return kOtherField;
}

}  // namespace meshloom::trainer
