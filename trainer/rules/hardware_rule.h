// The rules that ship with the program: what each kind of hardware changes in every recipe. A rule is a file of
// trainer/rules/hardware/; neither a new recipe nor a new profile needs an edit of any rule.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hal/device.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

// Of the rules that match, the most specific is applied: one with `profile` before one with `matrix`, that before one with
// `kind`.
struct HardwareRuleConfig : layers::ConfigOf<HardwareRuleConfig> {
  static constexpr std::string_view kName = "HardwareRule";
  static constexpr std::string_view kAbout = "Edits every recipe that runs on some hardware.";
  std::string profile = "*";  // pattern over the names of profiles
  std::string kind;           // of the profile; "" = any
  std::string matrix;         // see matrix_dtype(); "" = any
  std::vector<layers::Child<ModifierConfig>> modifiers;
  void fields(layers::FieldVisitor& v) override;
};

struct HardwareRule {
  std::string name;  // the file's, without its ending
  HardwareRuleConfig config;
  std::string file = {};
  std::map<std::string, int> lines = {};  // of the file, by path (layers::lines_of)
};

// What hardware rules are chosen by.
struct HardwareFacts {
  hal::Profile profile;
  std::string matrix;
};
// Of a device that runs as itself.
HardwareFacts facts_of(const hal::DeviceInfo& device);
// Of any device that runs as this profile, so that a plan without hardware gets the same rule.
HardwareFacts facts_of(const hal::Profile& profile);

// Parses rules, of which each is a file {name, text}. Throws Error at "NAME:LINE" on wrong syntax, on unknown fields, and where
// `profile` matches no shipped profile.
std::vector<HardwareRule> parse_hardware_rules(const std::vector<std::pair<std::string, std::string>>& files,
                                               const layers::ClassTable& classes);
// Those that ship with the program.
std::vector<HardwareRule> shipped_hardware_rules(const layers::ClassTable& classes);

// The most specific rule that matches; none when there is no match. Throws Error when two are equally specific.
std::optional<HardwareRule> find_hardware_rule(const std::vector<HardwareRule>& rules,
                                               const HardwareFacts& facts);

}  // namespace meshloom::trainer
