// The program: a straight line of op calls over single-assignment values, with explicit state. The one
// thing layers produce and the composer consumes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hal/memory_kind.h"
#include "kernels/program/types.h"

namespace meshloom::kernels {

struct Variant;

using ValueId = std::int32_t;
constexpr ValueId kNoValue = -1;

// What a value is for; memory is reported by these classes.
enum class Role : std::uint8_t {
  input,           // written by the host before each submit: tokens, targets, learning rate
  parameter,       // learned; persists
  optimizer,       // optimizer state; persists
  state,           // other persistent state: accumulators, counters
  gradient,        // cotangent of a parameter
  cache,           // keys and values of earlier tokens (layers/cache); persists, and belongs to no checkpoint
  parameter_copy,  // a parameter in 16 bits beside its f32; persists, and belongs to no checkpoint
  activation,      // everything else
};
std::string_view to_string(Role role);

struct Value {
  TensorType type;
  std::string name;  // path for parameters and state ("model/decoder/emb/weight"), else "v12"
  Role role = Role::activation;
  std::vector<std::string>
      axes;         // logical sharding axis per dimension ("batch", "seq", "embed", ...); "" = none
  std::string tag;  // remat tag ("attention.q_proj"); "" = none
  hal::MemoryKind memory = hal::MemoryKind::device;  // host: only `transfer` reads and writes it
};

enum class Phase : std::uint8_t { forward, backward, recompute, update };
std::string_view to_string(Phase phase);

// What a predicted time rests on.
enum class TimeBasis : std::uint8_t {
  measured,  // this very call was timed on this device
  similar,   // calls of the same variant with other sizes were
  fitted     // none was: it follows from the efficiency of such variants elsewhere
};
std::string_view to_string(TimeBasis basis);

// Decided once, by the select pass.
struct Choice {
  const Variant* variant = nullptr;
  std::map<std::string, std::int64_t> params;  // tile sizes and the like
  std::int64_t workspace_bytes = 0;
  double predicted_seconds = 0;  // the likely time of the call
  double floor_seconds = 0;      // a lower bound of it, by the profile's rates
  TimeBasis basis = TimeBasis::fitted;
};

struct Call {
  std::string op;
  std::vector<ValueId> inputs, outputs;
  Attrs attrs;
  std::string path;  // module path: "model/decoder/layer0/attention"
  Phase phase = Phase::forward;
  std::optional<Choice> choice;
  // Of a collective: the index of the call in front of which it reads its inputs and begins to move them. It ends, and writes its
  // outputs, where it stands. -1 = both are there.
  int starts = -1;
};

// Output `output` may, and for persistent state does, live in the storage of `input`.
struct Donation {
  ValueId input, output;
};

struct Program {
  std::string name;
  std::vector<Value> values;
  std::vector<Call> calls;
  std::vector<ValueId> inputs;   // every value without a defining call, in order
  std::vector<ValueId> outputs;  // values that outlive the program
  std::vector<Donation> donations;

  const Value& value(ValueId id) const { return values.at(static_cast<std::size_t>(id)); }
  Value& value(ValueId id) { return values.at(static_cast<std::size_t>(id)); }
  std::vector<TensorType> types(const std::vector<ValueId>& ids) const;
};

// Input and output types of one call, kept alive for a CallView.
struct CallTypes {
  std::vector<TensorType> inputs, outputs;
  CallTypes(const Program& program, const Call& call)
      : inputs(program.types(call.inputs)), outputs(program.types(call.outputs)) {}
  CallView view(const Call& call) const { return {call.op, inputs, outputs, call.attrs}; }
};

}  // namespace meshloom::kernels
