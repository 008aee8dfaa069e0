#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "backends/mpi/backend.h"
#include "backends/mpi/world.h"

namespace meshloom::backends::mpi {
namespace {

using hal::Envelope;

void check(int code, const std::string& where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(where, "MPI must carry messages", std::string(text, static_cast<std::size_t>(length)));
}

class MpiRequest : public hal::Request {
 public:
  MpiRequest(const hal::Transport& transport, int peer, Envelope envelope, std::size_t bytes, bool out)
      : transport_(transport), peer_(peer), envelope_(std::move(envelope)), bytes_(bytes), out_(out) {}

  ~MpiRequest() override {
    if (request_ == MPI_REQUEST_NULL) return;
    if (!out_) MPI_Cancel(&request_);
    MPI_Request_free(&request_);
  }

  bool done() override {
    if (request_ == MPI_REQUEST_NULL) return true;
    int done = 0;
    MPI_Status status;
    const int code = MPI_Test(&request_, &done, &status);
    if (code != MPI_SUCCESS) {
      int kind = MPI_ERR_OTHER;
      MPI_Error_class(code, &kind);
      if (kind == MPI_ERR_TRUNCATE) fail_size("more");
      check(code, where());
    }
    if (!done) return false;
    int received = 0;
    if (!out_) MPI_Get_count(&status, MPI_BYTE, &received);
    if (!out_ && static_cast<std::size_t>(received) != bytes_) fail_size(std::to_string(received));
    return true;
  }

  MPI_Request* handle() { return &request_; }
  std::string where() const { return transport_.name(transport_.rank()) + ", " + to_string(envelope_); }

 private:
  [[noreturn]] void fail_size(const std::string& found) const {
    throw Error(where(),
                "a message from " + transport_.name(peer_) + " must have the " + std::to_string(bytes_) +
                    " bytes that are expected",
                found);
  }

  const hal::Transport& transport_;
  int peer_;
  Envelope envelope_;
  std::size_t bytes_;
  bool out_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiTransport : public hal::Transport {
 public:
  MpiTransport(int rank, std::vector<hal::Peer> peers) : Transport(rank, std::move(peers)) {}
  ~MpiTransport() override {
    if (std::uncaught_exceptions() > 0)
      MPI_Abort(MPI_COMM_WORLD, 1);
    else
      MPI_Finalize();
  }

 protected:
  std::unique_ptr<hal::Request> do_send(int to, const Envelope& envelope,
                                        std::span<const std::byte> data) override {
    auto request = std::make_unique<MpiRequest>(*this, to, envelope, data.size(), true);
    check(MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_BYTE, to, envelope.tag, MPI_COMM_WORLD,
                    request->handle()),
          request->where());
    return request;
  }

  std::unique_ptr<hal::Request> do_receive(int from, const Envelope& envelope,
                                           std::span<std::byte> data) override {
    auto request = std::make_unique<MpiRequest>(*this, from, envelope, data.size(), false);
    check(MPI_Irecv(data.data(), static_cast<int>(data.size()), MPI_BYTE, from, envelope.tag, MPI_COMM_WORLD,
                    request->handle()),
          request->where());
    return request;
  }

  void do_abort(const std::string& reason) override {
    std::fprintf(stderr, "meshloom: %s\n", reason.c_str());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
  }
};

// The hosts of all ranks, by way of rank 0.
std::vector<hal::Peer> find_peers(int rank, int size) {
  constexpr std::size_t kLength = MPI_MAX_PROCESSOR_NAME;
  constexpr int kBytes = static_cast<int>(kLength);
  std::vector<char> names(static_cast<std::size_t>(size) * kLength);
  const auto of = [&](int other) { return names.data() + static_cast<std::size_t>(other) * kLength; };
  int length = 0;
  check(MPI_Get_processor_name(of(rank), &length), "ranks");
  const int all = kBytes * size;
  if (rank != 0) {
    check(MPI_Send(of(rank), kBytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD), "ranks");
    check(MPI_Recv(names.data(), all, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "ranks");
  } else {
    for (int other = 1; other < size; ++other)
      check(MPI_Recv(of(other), kBytes, MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "ranks");
    for (int other = 1; other < size; ++other)
      check(MPI_Send(names.data(), all, MPI_CHAR, other, 0, MPI_COMM_WORLD), "ranks");
  }
  std::vector<hal::Peer> peers;
  std::map<std::string, int> nodes;
  for (int other = 0; other < size; ++other) {
    const std::string host = of(other);
    peers.push_back({host, nodes.emplace(host, static_cast<int>(nodes.size())).first->second});
  }
  return peers;
}

}  // namespace

bool is_built() { return true; }

std::unique_ptr<hal::Transport> connect(const Environment& environment) {
  if (!launcher(environment))
    throw Error("ranks", "a launcher, mpirun or srun --mpi=pmix, must have started the process", "none");
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized) throw Error("ranks", "MPI is initialised once in a process", "a second time");
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "ranks");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  void* largest_tag = nullptr;
  int has_tag = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &has_tag);
  try {
    require_whole_world(environment, size);
    if (provided < MPI_THREAD_SERIALIZED)
      throw Error("MPI", "must allow one thread at a time", "thread level " + std::to_string(provided));
    if (has_tag && *static_cast<int*>(largest_tag) < hal::kMaxTag)
      throw Error("MPI", "must have tags up to " + std::to_string(hal::kMaxTag),
                  std::to_string(*static_cast<int*>(largest_tag)));
    return std::make_unique<MpiTransport>(rank, find_peers(rank, size));
  } catch (...) {
    if (size == 1) MPI_Finalize();
    throw;
  }
}

}  // namespace meshloom::backends::mpi
