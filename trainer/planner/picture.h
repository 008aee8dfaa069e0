// A simulated step as a picture.
#pragma once

#include <string>

#include "trainer/planner/timeline.h"

namespace meshloom::trainer {

// For chrome://tracing and Perfetto, in the format of `bench train-step --trace`: a process for each stage, with a thread for its
// device and one for each level of the network that it sends over.
std::string step_trace(const StepTime& time, const std::string& title);
// One HTML page that needs nothing else: `about`, preformatted, above the spans of all stages to scale.
std::string step_html(const StepTime& time, const std::string& title, const std::string& about);

}  // namespace meshloom::trainer
