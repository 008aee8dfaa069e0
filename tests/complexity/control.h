// The negative control: a small library in which a model is a list of classes with flat parameters, and a
// feature is added to a model by a subclass in that model's file. The measured number of lines must grow.
#pragma once

#include <string>

namespace meshloom::tests {

// Writes control_07.model.
void write_control_host(const std::string& directory, int host);
std::string control_file(int host);
// Edits that file so that the model can be made with variant `variant` of a feature.
void integrate_control(const std::string& directory, int host, int variant);
// Makes the model from its file, with that variant, and gives what it computes. Throws std::runtime_error
// when the file does not have it. Variant -1: the model as it was.
double run_control(const std::string& directory, int host, int variant);
// The same by hand.
double expected_control(int host, int variant);

}  // namespace meshloom::tests
