// A base class for transports that wrap another one.
#pragma once

#include <memory>

#include "hal/transport/transport.h"

namespace meshloom::hal {

class ForwardingTransport : public Transport {
 protected:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner);
  Transport& inner() const { return *inner_; }
  void do_abort(const std::string& reason) override { inner_->abort(reason); }

 private:
  std::unique_ptr<Transport> inner_;
};

}  // namespace meshloom::hal
