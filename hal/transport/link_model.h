// A network link as numbers, and a rank that is slowed: what wrappers emulate, as people write it.
#pragma once

#include <map>
#include <string>

namespace meshloom::hal {

// The full-duplex port of one rank.
struct LinkModel {
  double latency = 0;    // seconds from the last byte's leaving to its arrival
  double bandwidth = 0;  // bytes per second, each way; 0 = without limit
  double jitter = 0;     // seconds: up to so much more latency per message, evenly distributed
};

// "latency=0.2ms bandwidth=100MB/s jitter=50us", in any order: latency in s, ms, us or ns, bandwidth in B/s, kB/s,
// MB/s, GB/s (powers of 1000), KiB/s, MiB/s, GiB/s or bit/s, kbit/s, Mbit/s, Gbit/s; jitter may be left out. Throws
// Error (where = `option`) for anything else, and for a latency or bandwidth that is not positive.
LinkModel parse_link(const std::string& text, const std::string& option);
std::string to_string(const LinkModel& link);

// "1:3,2:1.5": rank -> how many times slower it is, at least 1. Throws Error (where = `option`), also for ranks that
// are not below `ranks` or are named twice.
std::map<int, double> parse_slow(const std::string& text, int ranks, const std::string& option);

}  // namespace meshloom::hal
