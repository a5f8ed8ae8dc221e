//===- Bisect.h - Which operation is wrong --------------------------------===//
#pragma once
#include "tools/lib/Verify.h"
#include <nlohmann/json.hpp>

namespace cfc {

/// One comparison of a case, as JSON.
nlohmann::ordered_json checkJson(const Check &check);

/// What --bisect says: the first value, in the order of the graph, that differs, and which operations may be
/// why. Where only some values are compared, as of kernels that return no others, those are all that lie
/// between it and values that are right.
std::string bisectText(const std::vector<CaseResult> &results);

/// The same as JSON; null where no value differs.
nlohmann::ordered_json bisectJson(const std::vector<CaseResult> &results);

} // namespace cfc
