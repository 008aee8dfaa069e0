// What `meshloom bench collectives` measured of the links between ranks of this host, in the cache folder beside the results of
// tuning. Plans predict the time of moves with it.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hal/transport/network.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// The time of n messages of b bytes in all is alpha + (n - 1) gap + b / bandwidth.
struct MeasuredLink {
  double alpha = 0, gap = 0;  // seconds
  double bandwidth = 0;       // bytes per second; 0 = without limit
  std::string date;
  bool operator==(const MeasuredLink&) const = default;
};

// The kinds of links, by how far ranks are apart.
constexpr const char *kThreadLink = "threads", *kHostLink = "processes of one host",
                     *kNetworkLink = "processes of different hosts";

// By kind; empty where none was measured. A file that cannot be read is ignored; `note` then says so.
std::map<std::string, MeasuredLink> measured_links(std::string* note = nullptr);
// Keeps the other kinds. Throws Error when there is no cache folder or it cannot be written.
void save_measured_link(const std::string& kind, const MeasuredLink& link);
// Throws Error (where = `where`) for anything that save_measured_link() would not write.
std::map<std::string, MeasuredLink> parse_measured_links(std::string_view json, const std::string& where);

// The link as the one level of a network.
hal::NetworkLevel level_of(const MeasuredLink& link);
// The seconds of one update's moves of this rank, those to and from other stages of a pipeline among them, one after another
// and with nothing beside them.
double predicted_move_seconds(const Plan& plan, const MeasuredLink& link);

}  // namespace meshloom::trainer
