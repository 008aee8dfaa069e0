#include "trainer/compose/passes/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "hal/error.h"
#include "hal/suggest.h"
#include "kernels/program/builder.h"
#include "kernels/program/call_text.h"
#include "trainer/compose/cost/cost_model.h"
#include "trainer/compose/rule_pattern.h"
#include "trainer/compose/tuning/tuning.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Choice;
using kernels::Variant;

constexpr const char* kNotRowExact = "does not give a row the same bits in any number of rows";

std::string params_text(const std::map<std::string, std::int64_t>& params) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : params) parts.push_back(name + "=" + std::to_string(value));
  return parts.empty() ? "none" : hal::join(parts);
}

std::string describe(const KernelRule& rule) {
  return "kernel rule op '" + rule.op + "', path '" + rule.path + "' -> '" + rule.variant + "'" +
         (rule.params.empty() ? "" : " with " + params_text(rule.params));
}

// Whether the rule names no variant, but asks for what was measured.
bool asks_measurements(const KernelRule& rule) {
  return rule.variant == kTunedVariant || rule.variant == kMeasuredVariant;
}

// Whether `found` has all of the parameters `asked`.
bool has_params(const std::map<std::string, std::int64_t>& found,
                const std::map<std::string, std::int64_t>& asked) {
  return std::all_of(asked.begin(), asked.end(), [&](const auto& param) {
    const auto it = found.find(param.first);
    return it != found.end() && it->second == param.second;
  });
}

}  // namespace

struct VariantSelector::State {
  struct Rule {
    KernelRule source;
    Matcher op, path;
    bool matched = false;
    int calls = 0, differ = 0;  // calls that the rule decided, and those that it decided differently
  };

  const kernels::Catalog& catalog;
  const hal::DeviceInfo& device;
  CostModel costs;
  std::vector<Rule> rules;
  std::optional<TuningLookup> tuning, measured;             // set when a rule asks for it
  std::map<std::pair<std::string, bool>, Choice> defaults;  // by call key and row_exact
  // By call key, variant, and how the rule asks for it.
  std::map<std::tuple<std::string, const Variant*, std::string>, Choice> named;
  std::vector<Refusal> refusals;
  std::set<std::string> refused;
  bool row_exact = false;  // of the program that is selected now

  void refuse(const std::string& op, const std::string& variant, const std::string& reason) {
    if (refused.insert(op + "\n" + variant + "\n" + reason).second) refusals.push_back({op, variant, reason});
  }

  Choice choice(const std::string& key, const Variant& variant, const kernels::Fit& fit,
                const kernels::CallView& view) const {
    Choice chosen;
    chosen.variant = &variant;
    chosen.params = fit.params;
    chosen.workspace_bytes = fit.workspace_bytes;
    costs.predict(chosen, key, view);
    return chosen;
  }

  const Choice& by_default(const std::string& key, const Call& call, const kernels::CallTypes& types) {
    const auto known = defaults.find({key, row_exact});
    if (known != defaults.end()) return known->second;
    const kernels::CallView view = types.view(call);
    const std::vector<const Variant*> variants = catalog.variants(call.op, device.backend);
    const hal::ProfileKind kind = device.profile.kind;
    // Variants that read and write the call's dtypes come first, then those that work on f32 copies, then the
    // reference.
    const bool low_precision = kernels::any_low_precision(view);
    constexpr std::array<std::pair<bool, bool>, 4> kTiers{
        {{true, true}, {true, false}, {false, true}, {false, false}}};
    for (const auto& [shaped, own] : kTiers)
      for (const Variant* variant : variants) {
        if (variant->kinds.empty() == shaped || (!low_precision && own)) continue;
        if (row_exact && !variant->row_exact) {
          if (!own) refuse(call.op, variant->name, kNotRowExact);
          continue;
        }
        if (own && (!variant->low_precision || variant->backend.empty() || !variant->serves(kind))) continue;
        if (shaped && !variant->serves(kind)) {
          std::string kinds;
          for (hal::ProfileKind k : variant->kinds)
            kinds += (kinds.empty() ? "" : ", ") + std::string(hal::to_string(k));
          refuse(call.op, variant->name,
                 "made for profiles of kind " + kinds + "; " + device.profile.name + " is of kind " +
                     std::string(hal::to_string(kind)) + " (a rule may name it)");
          continue;
        }
        const kernels::Fit fit = own ? variant->trusted_fit(view, device) : variant->answer(view, device);
        if (fit.ok)
          return defaults.emplace(std::pair(key, row_exact), choice(key, *variant, fit, view)).first->second;
        if (!own) refuse(call.op, variant->name, fit.reason);
      }
    const std::string where = "select, " + call.op + (call.path.empty() ? "" : " in " + call.path);
    if (row_exact)
      throw NotRowExact(where,
                        "needs a variant on " + device.backend +
                            " that gives a row the same bits in any number of rows (row_exact)",
                        "none that fits");
    throw hal::Error(where, "a variant must fit, at least the reference", to_string(call.attrs));
  }

  template <typename E>
  [[noreturn]] static void does_not_fit(const KernelRule& rule, const Call& call, const std::string& reason) {
    throw E(describe(rule) + ", " + call.op + (call.path.empty() ? "" : " in " + call.path),
            "a variant named by a rule must fit", reason);
  }

  const Choice& by_rule(const std::string& key, const Call& call, const kernels::CallTypes& types,
                        const KernelRule& rule) {
    const Variant* variant = variant_of(rule, key, call.op);
    const TunedCall* tuned = tuned_call(rule, key);
    const std::string how = tuned ? rule.variant : params_text(rule.params);
    if (row_exact && !variant->row_exact) {
      if (tuned) return by_default(key, call, types);
      does_not_fit<NotRowExact>(rule, call, kNotRowExact);
    }
    const auto known = named.find({key, variant, how});
    if (known != named.end()) return known->second;
    const kernels::CallView view = types.view(call);
    kernels::Fit fit = variant->answer(view, device);
    if (tuned && !fit.ok) return by_default(key, call, types);  // it was measured for a similar call
    if (tuned)
      fit = as_tuned(*variant, std::move(fit), view, *tuned);
    else if (!rule.params.empty())
      fit = with_params(*variant, std::move(fit), view, rule.params);
    if (!fit.ok) does_not_fit<hal::Error>(rule, call, fit.reason);
    return named.emplace(std::tuple(key, variant, how), choice(key, *variant, fit, view)).first->second;
  }

  // The answer of a variant with the parameters that were asked for; no where it does not offer them for this call.
  kernels::Fit with_params(const Variant& variant, kernels::Fit standard, const kernels::CallView& view,
                           const std::map<std::string, std::int64_t>& asked) const {
    if (!standard.ok || has_params(standard.params, asked)) return standard;
    std::vector<std::string> offered{params_text(standard.params)};
    // The alternatives are those of calls that the variant takes without f32 copies.
    if (variant.alternatives && !standard.params.count(kernels::kF32Fallback))
      for (kernels::Fit& other : variant.alternatives(view, device)) {
        if (!other.ok) continue;
        if (has_params(other.params, asked)) return std::move(other);
        offered.push_back(params_text(other.params));
      }
    std::string list;
    for (std::size_t i = 0; i < offered.size(); ++i)
      list += (i == 0 ? "" : i + 1 == offered.size() ? " or " : "; ") + offered[i];
    return kernels::Fit::no("for this call it has the parameters " + list + ", and not " +
                            params_text(asked));
  }

  // Uses the parameters that were measured, if the variant still offers them.
  kernels::Fit as_tuned(const Variant& variant, kernels::Fit standard, const kernels::CallView& view,
                        const TunedCall& tuned) const {
    if (standard.params == tuned.params || !variant.alternatives) return standard;
    for (kernels::Fit& other : variant.alternatives(view, device))
      if (other.params == tuned.params) return std::move(other);
    return standard;
  }

  // The choice of the rule for this call; nullptr when the rule does not apply.
  const Variant* variant_of(const KernelRule& rule, const std::string& key, const std::string& op) const {
    if (!asks_measurements(rule)) return catalog.find(op, device.backend, rule.variant);
    const TunedCall* tuned = tuned_call(rule, key);
    return tuned ? catalog.find(op, device.backend, tuned->variant) : nullptr;
  }

  // What was measured for this call, where the rule asks for that; nullptr = nothing.
  const TunedCall* tuned_call(const KernelRule& rule, const std::string& key) const {
    if (!asks_measurements(rule)) return nullptr;
    return (rule.variant == kTunedVariant ? tuning : measured)->find(key);
  }

  void choose(Call& call, const kernels::Program& program) {
    const kernels::CallTypes types(program, call);
    const std::string key = kernels::call_text(call.op, types.inputs, call.attrs);
    Rule* winner = nullptr;
    for (Rule& rule : rules)
      if (rule.op(call.op) && rule.path(call.path) && variant_of(rule.source, key, call.op)) {
        rule.matched = true;
        winner = &rule;
      }
    const Choice& standard = by_default(key, call, types);
    if (!winner) {
      call.choice = standard;
      return;
    }
    call.choice = by_rule(key, call, types, winner->source);
    const bool differs = call.choice->variant != standard.variant || call.choice->params != standard.params;
    ++winner->calls;
    winner->differ += differs;
  }
};

VariantSelector::VariantSelector(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                                 const std::vector<KernelRule>& rules, std::shared_ptr<const Tuning> tuning)
    : state_(new State{catalog, device, CostModel(device), {}, {}, {}, {}, {}, {}, {}}) {
  for (const KernelRule& source : rules) {
    State::Rule rule{source, Matcher(source.op, describe(source)), Matcher(source.path, describe(source))};
    std::vector<std::string> ops;
    std::set<std::string> variants;
    bool found = false;
    for (const kernels::Contract* contract : catalog.contracts()) {
      if (contract->view || contract->moves || !rule.op(contract->name)) continue;
      ops.push_back(contract->name);
      for (const Variant* variant : catalog.variants(contract->name, device.backend)) {
        variants.insert(variant->name);
        found = found || variant->name == source.variant;
      }
    }
    if (source.variant == kTunedVariant) {
      state_->tuning.emplace(device, /*only_own=*/false, tuning);
      if (state_->tuning->empty())
        throw hal::Error(
            describe(source),
            "needs measurements on this device with this driver and these kernels, or on a similar device: "
            "run `meshloom bench tune` for the recipe",
            state_->tuning->note().empty() ? "none in " + Tuning(device).path().parent_path().string()
                                           : state_->tuning->note());
      found = true;
    }
    if (source.variant == kMeasuredVariant) {
      state_->measured.emplace(device, /*only_own=*/true, tuning);
      found = true;
    }
    if (asks_measurements(source) && !source.params.empty())
      throw hal::Error(describe(source), "the parameters are those that were measured: none may be named",
                       params_text(source.params));
    const std::vector<std::string> known(variants.begin(), variants.end());
    if (ops.empty()) throw hal::Error(describe(source), "the op must match an op of the catalog");
    if (!found)
      throw hal::Error(describe(source),
                       "the variant must be one of " + hal::join(known) + " on backend " + device.backend +
                           hal::suggestion(source.variant, known),
                       "'" + source.variant + "'");
    state_->rules.push_back(std::move(rule));
  }
}

VariantSelector::~VariantSelector() = default;

kernels::Program VariantSelector::select(kernels::Program program, bool row_exact) {
  state_->row_exact = row_exact;
  for (Call& call : program.calls)
    if (const kernels::Contract& contract = state_->catalog.contract(call.op);
        !contract.view && !contract.moves)
      state_->choose(call, program);
  // A view runs no kernel, and neither does a collective, but its choice names the contract for readers of the plan.
  for (Call& call : program.calls)
    if (!call.choice) {
      call.choice.emplace();
      call.choice->variant = state_->catalog.find(call.op, "", "reference");
    }
  return program;
}

const std::vector<Refusal>& VariantSelector::refusals() const { return state_->refusals; }

std::vector<std::string> VariantSelector::unmatched_rules() const {
  std::vector<std::string> list;
  for (const State::Rule& rule : state_->rules)
    if (!rule.matched && rule.source.variant != kMeasuredVariant) list.push_back(describe(rule.source));
  return list;
}

std::vector<std::string> VariantSelector::tuned_rules() const {
  std::vector<std::string> list;
  for (const std::optional<TuningLookup>* lookup : {&state_->tuning, &state_->measured})
    if (*lookup && !(*lookup)->note().empty()) list.push_back((*lookup)->note());
  for (const State::Rule& rule : state_->rules)
    if (asks_measurements(rule.source) && rule.differ > 0)
      list.push_back(
          fmt::format("{}: {} calls use tuned results, {} of them with another variant or other parameters "
                      "than without",
                      describe(rule.source), rule.calls, rule.differ));
  return list;
}

std::vector<std::string> VariantSelector::no_op_rules() const {
  std::vector<std::string> list;
  for (const State::Rule& rule : state_->rules)
    if (rule.matched && rule.differ == 0 && rule.source.variant != kMeasuredVariant)
      list.push_back(describe(rule.source));
  return list;
}

kernels::Choice select_one(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                           const std::string& op, const std::vector<kernels::TensorType>& inputs,
                           const kernels::Attrs& attrs) {
  kernels::Program program;
  program.name = op;
  kernels::Builder builder(catalog, program);
  std::vector<kernels::Tensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    tensors.push_back(builder.input("in" + std::to_string(i), inputs[i], kernels::Role::input));
  for (kernels::Tensor output : builder.call(op, tensors, attrs)) builder.output(output);
  return *VariantSelector(catalog, device, {}).select(std::move(program)).calls.front().choice;
}

}  // namespace meshloom::trainer
