#include "hal/wrappers/forwarding_transport.h"

#include <utility>
#include <vector>

namespace meshloom::hal {
namespace {

std::vector<Peer> peers_of(const Transport& transport) {
  std::vector<Peer> peers;
  for (int rank = 0; rank < transport.size(); ++rank) peers.push_back(transport.peer(rank));
  return peers;
}

}  // namespace

ForwardingTransport::ForwardingTransport(std::unique_ptr<Transport> inner)
    : Transport(inner->rank(), peers_of(*inner)), inner_(std::move(inner)) {}

}  // namespace meshloom::hal
