//===- ImportConfig.h - The config.json of a Hugging Face model -----------===//
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cfc {

/// One object of config.json. A key that is absent or null has the family's default. Remembers which keys
/// have been read, so that an option that nobody knows can be told from one that has had its effect. Throws
/// Failure (2), naming file and key, for values of the wrong kind.
class Options {
public:
  /// `where` is the file and the path of the object in it.
  Options(nlohmann::json object, std::string where);

  const std::string &where() const { return location; }
  /// Whether the key is there and not null.
  bool has(const std::string &key) const;
  /// A whole number of at least 1.
  int64_t count(const std::string &key, std::optional<int64_t> fallback = std::nullopt);
  /// Nothing where the key is null; the fallback where it is absent.
  std::optional<int64_t> optionalCount(const std::string &key,
                                       std::optional<int64_t> fallback = std::nullopt);
  /// The same with 0 allowed.
  int64_t index(const std::string &key, int64_t fallback);
  double number(const std::string &key, std::optional<double> fallback = std::nullopt);
  /// A number above 0.
  double positive(const std::string &key, std::optional<double> fallback = std::nullopt);
  std::optional<double> optionalPositive(const std::string &key,
                                         std::optional<double> fallback = std::nullopt);
  bool flag(const std::string &key, bool fallback);
  std::string text(const std::string &key, std::optional<std::string> fallback = std::nullopt);
  std::optional<std::vector<std::string>> texts(const std::string &key);
  std::optional<Options> object(const std::string &key);

  /// Keys that make no difference to the block.
  void ignore(std::initializer_list<const char *> keys);
  /// An option that is off with this value, and not known with any other.
  void neutral(const std::string &key, const nlohmann::json &value);
  /// Keys whose values are neither read nor ignored nor off (null, false, 0, "", [], {}), and their values.
  std::map<std::string, std::string> unread() const;

private:
  /// The value, or null where there is none; the key counts as read.
  const nlohmann::json &take(const std::string &key);
  [[noreturn]] void wrong(const std::string &key, const char *expected) const;
  template <typename T> T orFallback(const std::string &key, const std::optional<T> &fallback) const;

  nlohmann::json values;
  std::string location;
  std::set<std::string> read;
};

/// The options of a folder's config.json.
Options readConfig(const std::string &folder);

} // namespace cfc
