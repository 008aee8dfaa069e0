// Recognises names of models and data sets on Hugging Face where a path is expected. Nothing is downloaded
// here; the errors say how to.
#pragma once

#include <string>

namespace meshloom::trainer {

// Whether it is "owner/name" of letters, digits, '-', '_' and '.', and no such path exists.
bool reads_as_hub_name(const std::string& path);

// Throw Error when the path reads as such a name; the first also for a directory with a Hugging Face model
// and no checkpoint. `option` is the option that the path was given to.
void refuse_hub_checkpoint(const std::string& path, const std::string& option);
void refuse_hub_model(const std::string& path, const std::string& option);
void refuse_hub_data(const std::string& path);

}  // namespace meshloom::trainer
