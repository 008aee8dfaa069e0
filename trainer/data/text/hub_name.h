// Names of models and data sets on Hugging Face where a path is wanted: nothing is downloaded here, so errors
// say how.
#pragma once

#include <string>

namespace meshloom::trainer {

// "owner/name" of letters, digits, '-', '_' and '.', with nothing of that path there.
bool reads_as_hub_name(const std::string& path);

// Throw Error for a path that reads as such a name; the first also for a directory that holds a Hugging Face
// model and no checkpoint. `option` is what the path was given to.
void refuse_hub_checkpoint(const std::string& path, const std::string& option);
void refuse_hub_model(const std::string& path, const std::string& option);
void refuse_hub_data(const std::string& path);

}  // namespace meshloom::trainer
