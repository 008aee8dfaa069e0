#include "trainer/serve/engine_error.h"

#include <fmt/format.h>

#include "hal/error.h"

namespace meshloom::trainer {

void throw_as_api_error(const std::function<void(const std::string&)>& lost) {
  try {
    throw;
  } catch (const EngineBusy& busy) {
    throw ApiError(429, fmt::format("the server is busy: {}", busy.what()), {}, "server_busy");
  } catch (const UnknownAdapter& unknown) {  // unloaded since the request was read
    throw ApiError(404, unknown.what(), "model", "model_not_found");
  } catch (const hal::DeviceLost& error) {
    if (lost) lost(error.what());
    throw ApiError(503, error.what(), {}, "device_lost");
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
}

ApiError error_of_end(FinishReason reason, const std::string& error) {
  if (reason == FinishReason::error) return ApiError(500, "the engine failed: " + error, {}, "engine_error");
  return ApiError(503, fmt::format("the request was ended: {}", to_string(reason)), {}, "request_ended");
}

}  // namespace meshloom::trainer
