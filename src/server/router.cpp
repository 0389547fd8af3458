#include "server/router.h"

namespace cachalot {
namespace {

std::string percent_decoded(std::string_view text) {
  std::string result;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      result += static_cast<char>(16 * digit(text[i + 1]) + digit(text[i + 2]));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

void Router::add(std::string method, std::string path, ApiHandler handler) {
  routes_[std::move(path)][std::move(method)] = std::move(handler);
}

void Router::add_api(const std::string& method, const std::string& path,
                     const ApiHandler& handler) {
  for (const char* base : {"", "/v1", "/beta", "/beta/v1"}) add(method, base + path, handler);
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  Match match;
  auto route = routes_.find(path);
  if (route == routes_.end()) {
    // The last part may be a parameter, slashes included: names of models have some.
    for (size_t slash = path.rfind('/'); slash != path.npos && slash > 0;
         slash = path.rfind('/', slash - 1)) {
      if (slash + 1 == path.size()) continue;
      route = routes_.find(std::string(path.substr(0, slash)) + "/{}");
      if (route == routes_.end()) continue;
      match.parameter = percent_decoded(path.substr(slash + 1));
      break;
    }
  }
  if (route == routes_.end()) return match;
  for (const auto& [name, handler] : route->second) {
    match.methods.push_back(name);
    if (name == method) match.handler = &handler;
  }
  return match;
}

}  // namespace cachalot
