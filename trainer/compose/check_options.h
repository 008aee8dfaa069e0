// What options of composing must be. All of these throw hal::Error.
#pragma once

#include "trainer/compose/compose.h"
#include "trainer/compose/plan.h"
#include "trainer/learner/learner.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

void check_training(const ComposeOptions& options, const Learner::Config& learner);
void check_inference(const ComposeOptions& options);
// For several ranks, which do not have all that one has.
void check_several_ranks(const ComposeOptions& options, const Topology& mesh);
// For several islands, and what changes beside their parameters, which would drift apart between islands.
void check_islands(const ComposeOptions& options, const Topology& mesh);
void check_states_of_islands(const Plan& plan, const Learner::Config& learner);

}  // namespace meshloom::trainer
