// Who is told what an import or an export leaves out, a line each time.
#pragma once

#include <functional>
#include <string>

namespace meshloom::trainer {

using Note = std::function<void(const std::string&)>;

}  // namespace meshloom::trainer
