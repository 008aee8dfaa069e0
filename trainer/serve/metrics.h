// Counters and histograms of a server in Prometheus' text format, under vLLM's names with the prefix "meshloom_".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/inference/request.h"

namespace meshloom::trainer {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);  // rising
  void observe(double value);
  // Lines of `name`, which has the labels `labels` ("a=\"b\"").
  std::string text(const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;  // one more than bounds
  double sum_ = 0;
};

// Of one thread.
class Metrics {
 public:
  Metrics();
  Histogram first_token, between_tokens, whole_request;  // seconds
  void finished(const std::string& reason) { ++finished_[reason]; }
  void responded(int status) { ++responses_[status]; }
  std::string text(const std::string& model, const EngineCounters& engine) const;

 private:
  std::map<std::string, std::int64_t> finished_;
  std::map<int, std::int64_t> responses_;
};

}  // namespace meshloom::trainer
