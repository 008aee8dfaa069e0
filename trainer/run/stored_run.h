// A run as its checkpoints hold it: what goes into one, and how a run starts from one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/execute/session.h"
#include "trainer/run/run_state.h"

namespace meshloom::trainer {

// The model, the optimizer, the recipe and `state`. Unhealthy where `reason` says so, or a value is not finite. What it
// refers to must outlive it.
CheckpointContents contents_of(Session& session, const StoredRecipe& recipe, const RunState& state,
                               const std::string& reason);

// Puts a checkpoint of the same run into the session. `now` says what the run would go on with: other data and other
// configuration are errors, and so is all that changes the bits, unless `allow_rounding`; then `note` is told of each.
// Throws Error also where a value is not finite.
RunState resume_from(const Checkpoint& checkpoint, const TrainerConfig& config, const RunState& now,
                     bool allow_rounding, Session& session, const layers::ClassTable& classes,
                     const std::function<void(const std::string&)>& note);

// Puts a checkpoint's parameters into the session, and leaves the rest as it was initialized. Throws Error also where a
// value is not finite.
void start_from(const Checkpoint& checkpoint, Session& session,
                const std::function<void(const std::string&)>& note);

}  // namespace meshloom::trainer
