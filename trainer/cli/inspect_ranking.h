// How `meshloom kernels --inspect CALL --rank` prints the ways to run a call.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/execute/rank_candidates.h"

namespace meshloom::trainer {

// A table for a terminal, or for a page. `call` is as it was typed.
std::string ranking_text(const std::string& call, const std::vector<RankedCandidate>& ranked);
std::string ranking_markdown(const std::string& call, const std::vector<RankedCandidate>& ranked);
nlohmann::ordered_json ranking_json(const std::string& call, const std::vector<RankedCandidate>& ranked);

}  // namespace meshloom::trainer
