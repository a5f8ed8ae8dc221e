//===- Json.cpp - JSON files that users give ------------------------------===//
#include "tools/lib/Json.h"
#include "tools/lib/Failure.h"
#include <set>
#include <vector>

using nlohmann::json;

json cfc::parseJson(std::string_view text, const std::string &where) {
  std::vector<std::set<std::string>> seen;
  auto callback = [&](int, json::parse_event_t event, json &value) {
    if (event == json::parse_event_t::object_start)
      seen.emplace_back();
    else if (event == json::parse_event_t::object_end)
      seen.pop_back();
    else if (event == json::parse_event_t::key && !seen.back().insert(value.get<std::string>()).second)
      badInput(where, "the key \"{}\" appears twice", value.get<std::string>());
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), callback);
  } catch (const json::exception &error) {
    badInput(where, "its JSON is garbled: {}", error.what());
  }
}
