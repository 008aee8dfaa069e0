// How a run is written into a checkpoint, and how a run starts from one.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/execute/session.h"
#include "trainer/run/state/run_state.h"

namespace meshloom::trainer {

// The persistent values that a checkpoint holds besides the model: the optimizer and other state that
// outlives a step. Metrics are not among them.
std::vector<NamedTensor> state_tensors(const Plan& plan);

// Copies a value of a run, by its name.
using ReadValue = std::function<void(const std::string& name, std::span<std::byte> into)>;

// The checkpoint of the model, the optimizer, the recipe and `state`, whose values `read` gives. It is unhealthy when
// `reason` is not "" or a value is not finite. The plan must outlive what this returns.
CheckpointContents contents_of(const Plan& plan, const ReadValue& read, const StoredRecipe& recipe,
                               const RunState& state, const std::string& reason);

// Loads a checkpoint of the same run into the session. `now` is the state that the run would continue with.
// Throws Error when the data or the configuration differ, when a value is not finite, and when anything
// differs that changes the bits; with `allow_rounding` the latter is noted instead.
RunState resume_from(const Checkpoint& checkpoint, const TrainerConfig& config, const RunState& now,
                     bool allow_rounding, Session& session, const layers::ClassTable& classes,
                     const std::function<void(const std::string&)>& note);

// Loads the parameters of a checkpoint into the session and leaves all else as it was initialized. Throws
// Error when a value is not finite.
void start_from(const Checkpoint& checkpoint, Session& session,
                const std::function<void(const std::string&)>& note);

}  // namespace meshloom::trainer
