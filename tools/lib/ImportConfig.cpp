//===- ImportConfig.cpp - The config.json of a Hugging Face model ---------===//
#include "tools/lib/ImportConfig.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Files.h"
#include "tools/lib/Json.h"
#include <cmath>
#include <filesystem>

using namespace cfc;
using nlohmann::json;

Options::Options(json object, std::string where) : values(std::move(object)), location(std::move(where)) {
  if (!values.is_object())
    badInput(location, "must be a JSON object, not {}", values.type_name());
}

bool Options::has(const std::string &key) const {
  auto found = values.find(key);
  return found != values.end() && !found->is_null();
}

const json &Options::take(const std::string &key) {
  static const json none;
  read.insert(key);
  auto found = values.find(key);
  return found == values.end() ? none : *found;
}

void Options::wrong(const std::string &key, const char *expected) const {
  std::string found = values.at(key).dump();
  if (found.size() > 60)
    found = found.substr(0, 57) + "…";
  badInput(location, "\"{}\" must be {}; it is {}", key, expected, found);
}

template <typename T> T Options::orFallback(const std::string &key, const std::optional<T> &fallback) const {
  if (!fallback)
    badInput(location, "lacks \"{}\"", key);
  return *fallback;
}

static constexpr int64_t kMostCounted = int64_t(1)
                                        << 30; // far above any model, far below what would overflow

int64_t Options::count(const std::string &key, std::optional<int64_t> fallback) {
  auto found = optionalCount(key);
  return found ? *found : orFallback(key, fallback);
}

std::optional<int64_t> Options::optionalCount(const std::string &key, std::optional<int64_t> fallback) {
  const json &value = take(key);
  if (value.is_null())
    return values.contains(key) ? std::nullopt : fallback;
  if (!value.is_number_unsigned() || value == 0 || value > kMostCounted)
    wrong(key, "a whole number from 1 to 2^30");
  return value.get<int64_t>();
}

int64_t Options::index(const std::string &key, int64_t fallback) {
  return take(key) == json(0) ? 0 : count(key, fallback);
}

double Options::number(const std::string &key, std::optional<double> fallback) {
  const json &value = take(key);
  if (value.is_null())
    return orFallback(key, fallback);
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    wrong(key, "a number");
  return value.get<double>();
}

double Options::positive(const std::string &key, std::optional<double> fallback) {
  double result = number(key, fallback);
  if (result <= 0)
    wrong(key, "a number above 0");
  return result;
}

std::optional<double> Options::optionalPositive(const std::string &key, std::optional<double> fallback) {
  if (take(key).is_null())
    return values.contains(key) ? std::nullopt : fallback;
  return positive(key);
}

bool Options::flag(const std::string &key, bool fallback) {
  const json &value = take(key);
  if (value.is_null())
    return fallback;
  if (!value.is_boolean())
    wrong(key, "true or false");
  return value.get<bool>();
}

std::string Options::text(const std::string &key, std::optional<std::string> fallback) {
  const json &value = take(key);
  if (value.is_null())
    return orFallback(key, fallback);
  if (!value.is_string())
    wrong(key, "a string");
  return value.get<std::string>();
}

std::optional<std::vector<std::string>> Options::texts(const std::string &key) {
  const json &value = take(key);
  if (value.is_null())
    return std::nullopt;
  std::vector<std::string> result;
  if (!value.is_array())
    wrong(key, "an array of strings");
  for (const json &item : value) {
    if (!item.is_string())
      wrong(key, "an array of strings");
    result.push_back(item.get<std::string>());
  }
  return result;
}

std::optional<Options> Options::object(const std::string &key) {
  const json &value = take(key);
  if (value.is_null())
    return std::nullopt;
  return Options(value, location + ": " + key);
}

void Options::ignore(std::initializer_list<const char *> keys) { read.insert(keys.begin(), keys.end()); }

void Options::neutral(const std::string &key, const json &value) {
  auto found = values.find(key);
  if (found != values.end() && *found == value)
    read.insert(key);
}

static bool isOff(const json &value) {
  return value.is_null() || value == json(false) || (value.is_number() && value.get<double>() == 0) ||
         ((value.is_string() || value.is_structured()) && value.empty()) || value == json("");
}

std::map<std::string, std::string> Options::unread() const {
  std::map<std::string, std::string> result;
  for (auto &[key, value] : values.items())
    if (!read.count(key) && !isOff(value))
      result[key] = value.is_structured() ? "…" : value.dump();
  return result;
}

Options cfc::readConfig(const std::string &folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    badInput(folder, "is no folder: cfc import reads the folder of a model, with config.json and its "
                     "safetensors files");
  std::string path = (std::filesystem::path(folder) / "config.json").string();
  auto file = MappedFile::open(path);
  return Options(parseJson(file->text(), path), path);
}
