// What clients hear of an engine that refuses or ends a request.
#pragma once

#include <functional>
#include <string>

#include "trainer/inference/request.h"
#include "trainer/serve/api_error.h"

namespace meshloom::trainer {

// To be called where EngineClient::submit() threw: throws the ApiError of the exception at hand. `lost` hears of a lost device; it may be
// empty.
[[noreturn]] void throw_as_api_error(const std::function<void(const std::string&)>& lost);
// Of a request that ended by error, cancelled or deadline.
ApiError error_of_end(FinishReason reason, const std::string& error);

}  // namespace meshloom::trainer
