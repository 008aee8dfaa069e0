// Says where in a file a rule stands, so that a message about it names the line.
#pragma once

#include <map>
#include <string>

namespace meshloom::trainer {

// "FILE:LINE, MESSAGE" for a message that begins with the path of what a file sets, such as "mesh_rules[0].modifiers[1]
// SetKernel: ..."; the message itself where it begins with no such path. `lines` is what layers::lines_of says of the file.
std::string located(const std::string& file, const std::map<std::string, int>& lines,
                    const std::string& message);

}  // namespace meshloom::trainer
