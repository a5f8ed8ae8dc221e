//===- Json.h - JSON files that users give --------------------------------===//
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace cfc {

/// The value of a JSON text. Fails (2), naming `where`, the file, for garbled text and for a key that an
/// object has twice.
nlohmann::json parseJson(std::string_view text, const std::string &where);

} // namespace cfc
