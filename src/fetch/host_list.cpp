#include "fetch/host_list.h"

#include <algorithm>
#include <charconv>

namespace cachalot {
namespace {

// Names differ neither by case nor by the root's dot at their end.
std::string plain_name(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);
  std::string result(name);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 'a' - 'A');
  return result;
}

bool is_name(std::string_view name) {
  return !name.empty() && !name.starts_with('.') && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
}

bool is_bracketed_address(std::string_view name) {
  return name.size() > 4 && name.front() == '[' && name.back() == ']' &&
         std::ranges::all_of(name.substr(1, name.size() - 2), [](char c) {
           return (c >= 'a' && c <= 'f') || (c >= '0' && c <= '9') || c == ':' || c == '.';
         });
}

std::optional<uint16_t> port_of(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

}  // namespace

Result<HostList::Entry> HostList::parse_entry(const std::string& text) {
  const auto wrong = [&] {
    return fail(
        "expected a host (images.example.org, *.example.org, * or an address, :PORT behind it for "
        "another port than the scheme's), found \"{}\"",
        text.substr(0, 80));
  };
  Entry entry;
  std::string_view rest = text;
  const size_t colon = rest.rfind(':');
  if (colon != rest.npos && rest.find(']', colon) == rest.npos) {
    entry.port = port_of(rest.substr(colon + 1));
    if (!entry.port) return wrong();
    rest = rest.substr(0, colon);
  }
  entry.host = plain_name(rest);
  if (rest == "*") {
    entry.host.clear();
    entry.below = true;
    return entry;
  }
  if (entry.host.starts_with("*.")) {
    entry.host.erase(0, 1);
    entry.below = true;
    if (!is_name(std::string_view(entry.host).substr(1))) return wrong();
    return entry;
  }
  if (!is_name(entry.host) && !is_bracketed_address(entry.host)) return wrong();
  return entry;
}

Result<HostList> HostList::parse(const std::vector<std::string>& entries) {
  HostList list;
  for (const std::string& text : entries) {
    CACHALOT_TRY(Entry entry, parse_entry(text));
    list.entries_.push_back(std::move(entry));
  }
  return list;
}

bool HostList::allows(std::string_view host, uint16_t port, uint16_t own_port) const {
  const std::string name = plain_name(host);
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    if (port != entry.port.value_or(own_port)) return false;
    if (!entry.below) return name == entry.host;
    return name.size() > entry.host.size() && name.ends_with(entry.host);
  });
}

}  // namespace cachalot
