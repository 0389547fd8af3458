#include "fetch/host_list.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

bool allows(const std::string& entry, std::string_view host, uint16_t port = 443) {
  const auto list = HostList::parse({entry});
  EXPECT_TRUE(list) << entry;
  return list && list->allows(host, port, 443);
}

TEST(HostList, KnowsAHostByItsWholeName) {
  EXPECT_TRUE(allows("images.example.org", "images.example.org"));
  EXPECT_TRUE(allows("Images.Example.org.", "IMAGES.example.ORG"));
  EXPECT_TRUE(allows("images.example.org", "images.example.org."));
  EXPECT_FALSE(allows("images.example.org", "example.org"));
  EXPECT_FALSE(allows("images.example.org", "a.images.example.org"));
  EXPECT_FALSE(allows("images.example.org", "images.example.org.evil.net"));
  EXPECT_FALSE(allows("images.example.org", ""));
}

TEST(HostList, KnowsAllNamesBelowOne) {
  EXPECT_TRUE(allows("*.example.org", "a.example.org"));
  EXPECT_TRUE(allows("*.example.org", "a.b.example.org"));
  EXPECT_FALSE(allows("*.example.org", "example.org"));
  EXPECT_FALSE(allows("*.example.org", "evilexample.org"));
  EXPECT_FALSE(allows("*.example.org", ".example.org"));
  EXPECT_TRUE(allows("*", "anything.net"));
  EXPECT_FALSE(allows("*", ""));
}

TEST(HostList, MeansTheSchemesPortUnlessItNamesOne) {
  EXPECT_FALSE(allows("example.org", "example.org", 8443));
  EXPECT_TRUE(allows("example.org:8443", "example.org", 8443));
  EXPECT_FALSE(allows("example.org:8443", "example.org", 443));
  EXPECT_FALSE(allows("*", "example.org", 22));
  EXPECT_TRUE(allows("*:8443", "example.org", 8443));
}

TEST(HostList, KnowsAddresses) {
  EXPECT_TRUE(allows("192.0.2.1", "192.0.2.1"));
  EXPECT_TRUE(allows("[2001:db8::1]", "[2001:DB8::1]"));
  EXPECT_TRUE(allows("[2001:db8::1]:8443", "[2001:db8::1]", 8443));
}

TEST(HostList, RefusesWhatIsNoHost) {
  for (const char* entry : {"", "*.", "*example.org", "a.*.org", "https://example.org", "a/b",
                            "a b", "example.org:", "example.org:0", "example.org:65536",
                            "example.org:x", "2001:db8::1", "[2001:db8::1", ".org",
                            "b\xc3\xbc"
                            "cher.example"}) {
    const auto list = HostList::parse({entry});
    ASSERT_FALSE(list) << entry;
    EXPECT_NE(list.error().message.find("expected a host"), std::string::npos);
  }
}

TEST(HostList, AllowsNothingWhenEmpty) {
  EXPECT_FALSE(HostList::parse({})->allows("example.org", 443, 443));
}

}  // namespace
}  // namespace cachalot
