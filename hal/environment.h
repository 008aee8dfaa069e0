// Settings that the environment gives.
#pragma once

namespace meshloom::hal {

// The variable as a number of at least 0, or `otherwise` where it is not set or empty. Throws Error (where = the variable).
double number_from_environment(const char* name, double otherwise);

}  // namespace meshloom::hal
