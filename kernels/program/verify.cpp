#include "kernels/program/verify.h"

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "hal/error.h"
#include "kernels/core/catalog.h"
#include "kernels/program/sizes.h"

namespace meshloom::kernels {
namespace {

class Verifier {
 public:
  Verifier(const Program& program, const Catalog& catalog, std::string_view pass)
      : program_(program),
        catalog_(catalog),
        pass_(pass),
        defined_(program.values.size(), kNever),
        storage_(program.values.size()),
        last_read_(program.values.size(), kNever) {
    std::iota(storage_.begin(), storage_.end(), 0);
  }

  void run() {
    values();
    for (ValueId id : program_.inputs) define(id, kInput, words("program inputs"));
    for (std::size_t i = 0; i < program_.calls.size(); ++i) call(static_cast<int>(i));
    for (ValueId id : program_.outputs)
      if (!known(id) || defined_[at(id)] == kNever)
        fail(words("outputs"), "every output must be defined", name(id));
    donations();
  }

 private:
  static constexpr int kNever = -2, kInput = -1;

  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  bool known(ValueId id) const { return id >= 0 && at(id) < program_.values.size(); }
  std::string name(ValueId id) const {
    std::string text = "%" + std::to_string(id);
    if (known(id) && !program_.value(id).name.empty()) text += " '" + program_.value(id).name + "'";
    return text;
  }
  // Where something is, in words that are made for errors only.
  using Where = std::function<std::string()>;
  static Where words(const char* where) {
    return [where] { return std::string(where); };
  }
  std::string place_of(const Where& where) const {
    return "program '" + program_.name + "' after " + std::string(pass_) + ", " + where();
  }
  [[noreturn]] void fail(const Where& where, const std::string& rule, const std::string& found = {}) const {
    throw hal::Error(place_of(where), rule, found);
  }

  void values() const {
    for (std::size_t i = 0; i < program_.values.size(); ++i) {
      const Value& value = program_.values[i];
      const Where where = [&] { return name(static_cast<ValueId>(i)); };
      for (std::int64_t dim : value.type.shape)
        if (dim <= 0) fail(where, "every dimension must be positive", to_string(value.type));
      if (!is_countable(value.type)) require_countable(place_of(where), value.type);
      if (!value.axes.empty() && static_cast<int>(value.axes.size()) != value.type.rank())
        fail(where, "needs one axis name per dimension", std::to_string(value.axes.size()));
    }
  }

  void define(ValueId id, int where, const Where& place) {
    if (!known(id)) fail(place, "values must exist", name(id));
    if (defined_[at(id)] != kNever) fail(place, "every value is defined once", name(id) + " again");
    defined_[at(id)] = where;
  }

  void call(int index) {
    const Call& call = program_.calls[static_cast<std::size_t>(index)];
    const Where where = [&] {
      return "call " + std::to_string(index) + " " + call.op + (call.path.empty() ? "" : " in " + call.path);
    };
    if (!catalog_.has(call.op)) fail(where, "the op must be known");
    for (ValueId id : call.inputs) {
      if (!known(id)) fail(where, "values must exist", name(id));
      if (defined_[at(id)] == kNever) fail(where, "every value is defined before its use", name(id));
      last_read_[at(storage_[at(id)])] = index;
    }
    starts(call, index, where);
    for (ValueId id : call.outputs) define(id, index, where);
    if (catalog_.contract(call.op).view && !call.inputs.empty() && !call.outputs.empty())
      storage_[at(call.outputs[0])] = storage_[at(call.inputs[0])];
    memory(call, where);
    const CallTypes types(program_, call);
    std::vector<TensorType> inferred;
    try {
      inferred = catalog_.contract(call.op).infer(types.inputs, call.attrs);
    } catch (const hal::Error& error) {
      fail(where, error.rule(), error.found());
    }
    if (inferred != types.outputs) fail(where, "output types must be those of the op's contract");
  }

  void starts(const Call& call, int index, const Where& where) const {
    if (call.starts == -1) return;
    if (!catalog_.contract(call.op).moves) fail(where, "only a collective may start before its place");
    if (call.starts < 0 || call.starts > index)
      fail(where, "a collective must start in front of its place or before",
           "call " + std::to_string(call.starts));
    for (ValueId id : call.inputs)
      if (defined_[at(id)] >= call.starts)
        fail(where, "what a collective moves must be defined before it starts",
             name(id) + " by call " + std::to_string(defined_[at(id)]));
  }

  void memory(const Call& call, const Where& where) const {
    const bool moves = call.op == "transfer";
    for (const ValueId id : call.inputs)
      if (!moves && program_.value(id).memory == hal::MemoryKind::host)
        fail(where, "only transfer reads a value on the host", name(id));
    for (const ValueId id : call.outputs) {
      const hal::MemoryKind kind = program_.value(id).memory;
      if (!moves && kind == hal::MemoryKind::host)
        fail(where, "only transfer writes a value on the host", name(id));
      if (moves && call.attrs.has("memory") && to_string(kind) != call.attrs.text("memory"))
        fail(where, "the result must be in the memory that the call names", name(id));
    }
  }

  void donations() const {
    std::vector<char> seen(program_.values.size(), 0);
    for (const Donation& donation : program_.donations) {
      const Where where = [&] { return "donation " + name(donation.input) + " -> " + name(donation.output); };
      if (!known(donation.input) || !known(donation.output)) fail(where, "values must exist");
      if (defined_[at(donation.input)] != kInput) fail(where, "only a program input can be donated");
      const int writer = defined_[at(donation.output)];
      if (writer < 0) fail(where, "only a call's output can receive a donation");
      if (program_.value(donation.input).type != program_.value(donation.output).type)
        fail(where, "both sides must have one type");
      if (program_.value(donation.input).memory != program_.value(donation.output).memory)
        fail(where, "both sides must be in one kind of memory");
      if (last_read_[at(donation.input)] > writer)
        fail(where, "a donated input is not read after its storage was overwritten",
             "a read by call " + std::to_string(last_read_[at(donation.input)]));
      for (ValueId id : {donation.input, donation.output}) {
        if (seen[at(id)]) fail(where, "a value is donated once");
        seen[at(id)] = 1;
      }
    }
  }

  const Program& program_;
  const Catalog& catalog_;
  std::string_view pass_;
  std::vector<int> defined_;
  std::vector<ValueId> storage_;  // by value: whose storage it is, seen through views
  std::vector<int> last_read_;    // by storage
};

}  // namespace

void verify(const Program& program, const Catalog& catalog, std::string_view pass) {
  Verifier(program, catalog, pass).run();
}

}  // namespace meshloom::kernels
