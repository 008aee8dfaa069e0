#include "kernels/core/catalog.h"

#include <utility>

#include "hal/error.h"
#include "hal/suggest.h"

namespace meshloom::kernels {
namespace {

Fit always(const CallView&, const hal::DeviceInfo&) { return Fit::yes(); }

// Runs the contract's reference on the host between the device's commands.
void encode_reference(const EncodeArgs& args) {
  std::vector<hal::Binding> bindings(args.inputs.begin(), args.inputs.end());
  bindings.insert(bindings.end(), args.outputs.begin(), args.outputs.end());
  const auto run = [op = std::string(args.call.op), inputs = args.call.inputs, outputs = args.call.outputs,
                    attrs = args.call.attrs,
                    contract = args.choice.variant->contract](std::span<const hal::HostRange> ranges) {
    // Copies of the inputs: the reference may write an output that shares storage with one.
    std::vector<std::vector<std::byte>> copies;
    std::vector<ConstTensorView> in;
    std::vector<TensorView> out;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      copies.emplace_back(ranges[i].data, ranges[i].data + inputs[i].bytes());
      in.push_back({inputs[i], copies.back().data()});
    }
    for (std::size_t i = 0; i < outputs.size(); ++i)
      out.push_back({outputs[i], ranges[inputs.size() + i].data});
    run_reference(*contract, {op, inputs, outputs, attrs}, in, out);
  };
  args.commands.host_call(run, bindings, args.label);
}

}  // namespace

void Catalog::add(Contract contract) {
  const std::string name = contract.name;
  const bool whole = contract.infer && contract.flops && contract.bytes && contract.reference &&
                     contract.partition && contract.tolerance && contract.cases && contract.in_place;
  if (name.empty() || !whole)
    throw hal::Error("contract '" + name + "'",
                     "every function of the table but gradient and make_input is needed");
  if (!contracts_.emplace(name, std::move(contract)).second)
    throw hal::Error("contract '" + name + "'", "is registered twice");
  add(Variant{.op = name,
              .backend = "",
              .name = "reference",
              .about = "the contract's reference on the host, in double precision: correct and loudly slow",
              .fit = always,
              .encode = encode_reference,
              .low_precision = true});
}

Variant Catalog::checked(Variant variant) {
  const std::string where = "variant '" + variant.name + "' of " + variant.op + " on " + variant.backend;
  if (!has(variant.op)) throw hal::Error(where, "the op must be registered first");
  if (variant.name.empty() || variant.about.empty() || !variant.fit || !variant.encode)
    throw hal::Error(where, "needs a name, a sentence about it, fit and encode");
  if (find(variant.op, variant.backend, variant.name)) throw hal::Error(where, "is registered twice");
  variant.contract = &contract(variant.op);
  variant.cast_variant =
      &cast_variants_[variant.backend];  // filled in when the backend's kernel of "cast" comes
  return variant;
}

void Catalog::add(Variant variant) { remember_cast(variants_.emplace_back(checked(std::move(variant)))); }

void Catalog::add_first(Variant variant) {
  remember_cast(variants_.emplace_front(checked(std::move(variant))));
}

void Catalog::remember_cast(const Variant& variant) {
  const Variant*& cast_variant = cast_variants_[variant.backend];
  if (variant.op == "cast" && !cast_variant && !variant.backend.empty()) cast_variant = &variant;
}

void Catalog::add(const std::string& backend, std::vector<OpVariants> ops) {
  for (auto& [op, variants] : ops)
    for (Variant& variant : variants) {
      variant.op = op;
      variant.backend = backend;
      add(std::move(variant));
    }
}

const Contract& Catalog::contract(std::string_view op) const {
  const auto it = contracts_.find(op);
  if (it != contracts_.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [name, contract] : contracts_) names.push_back(name);
  throw hal::Error("op '" + std::string(op) + "'",
                   "must be one of the catalog's ops" + hal::suggestion(op, names), "no such contract");
}

std::vector<const Contract*> Catalog::contracts() const {
  std::vector<const Contract*> all;
  for (const auto& [name, contract] : contracts_) all.push_back(&contract);
  return all;
}

std::vector<const Variant*> Catalog::variants(std::string_view op, std::string_view backend) const {
  std::vector<const Variant*> found;
  for (const bool own : {true, false})  // the reference belongs to no backend, and comes last
    for (const Variant& variant : variants_)
      if (variant.op == op && (own ? variant.backend == backend : variant.backend.empty()))
        found.push_back(&variant);
  return found;
}

const Variant* Catalog::find(std::string_view op, std::string_view backend, std::string_view name) const {
  for (const Variant& variant : variants_)
    if (variant.op == op && variant.name == name && (variant.backend == backend || variant.backend.empty()))
      return &variant;
  return nullptr;
}

}  // namespace meshloom::kernels
