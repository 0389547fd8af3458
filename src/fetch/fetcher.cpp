#include "fetch/fetcher.h"

#include <curl/curl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace cachalot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kParallel = 8;
constexpr size_t kLongestUrl = 8192;
// How late an abandoned call or the end of its time is noticed when nothing arrives.
constexpr int kPollMilliseconds = 50;

struct EasyDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct MultiDeleter {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using ParsedUrl = std::unique_ptr<CURLU, UrlDeleter>;

std::string part_of(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return {};
  std::string result = text;
  curl_free(text);
  return result;
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// One file on its way.
struct Transfer {
  std::string host;  // of the present hop, for messages
  bool encrypted = false;
  std::unique_ptr<CURL, EasyDeleter> handle;
  ParsedUrl url;  // what the handle goes to, as it was judged: no second parser reads the text
  int64_t redirects = 0;
  int64_t header_bytes = 0;
  std::vector<uint8_t> body;
  std::string refusal;  // why a callback broke it off

  Error error(std::string_view reason) const { return {fmt::format("{}: {}", host, reason)}; }
};

// One call of Fetcher::fetch.
class FetchCall {
 public:
  FetchCall(const HostList& hosts, const FetchLimits& limits, const AddressPolicy& allowed,
            std::span<const std::string> urls)
      : hosts_(hosts),
        limits_(limits),
        allowed_(allowed),
        urls_(urls),
        deadline_(Clock::now() + limits.total_time),
        transfers_(urls.size()),
        multi_(curl_multi_init()) {}
  ~FetchCall() {
    for (const Transfer& transfer : transfers_)
      if (transfer.handle) curl_multi_remove_handle(multi_.get(), transfer.handle.get());
  }
  FetchCall(const FetchCall&) = delete;
  FetchCall& operator=(const FetchCall&) = delete;

  tl::expected<void, FetchFailure> run(const Abandoned& abandoned);
  std::vector<uint8_t>& body(size_t index) { return transfers_[index].body; }

 private:
  static curl_socket_t open_socket(void* call, curlsocktype, curl_sockaddr* address);
  static size_t take_header(char* data, size_t size, size_t count, void* transfer);
  static size_t take_body(char* data, size_t size, size_t count, void* transfer);

  Status aim(Transfer& transfer, const std::string& url);
  Status begin(size_t index);
  Result<bool> finish(Transfer& transfer, CURLcode code);
  Error failure_of(const Transfer& transfer, CURLcode code) const;
  tl::expected<void, FetchFailure> take_finished();
  size_t first_unfinished() const;

  struct Context {  // what a callback needs
    FetchCall* call = nullptr;
    Transfer* transfer = nullptr;
  };

  const HostList& hosts_;
  const FetchLimits& limits_;
  const AddressPolicy& allowed_;
  std::span<const std::string> urls_;
  Clock::time_point deadline_;
  std::vector<Transfer> transfers_;
  std::vector<Context> contexts_;
  std::vector<bool> done_;
  std::unique_ptr<CURLM, MultiDeleter> multi_;
  size_t begun_ = 0;
  size_t running_ = 0;
  int64_t bytes_ = 0;  // of all files
};

// The only place where a connection begins: what is judged here is what is connected to.
curl_socket_t FetchCall::open_socket(void* data, curlsocktype purpose, curl_sockaddr* address) {
  const Context& context = *static_cast<const Context*>(data);
  if (purpose != CURLSOCKTYPE_IPCXN || !context.call->allowed_(address->addr)) {
    context.transfer->refusal = "its address is not a public one, nothing is fetched from it";
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

size_t FetchCall::take_header(char*, size_t size, size_t count, void* data) {
  const Context& context = *static_cast<const Context*>(data);
  const size_t bytes = size * count;
  context.transfer->header_bytes += static_cast<int64_t>(bytes);
  if (context.transfer->header_bytes <= context.call->limits_.header_bytes) return bytes;
  context.transfer->refusal =
      fmt::format("its headers have more than {} bytes", context.call->limits_.header_bytes);
  return 0;
}

size_t FetchCall::take_body(char* data, size_t size, size_t count, void* user) {
  const Context& context = *static_cast<const Context*>(user);
  FetchCall& call = *context.call;
  Transfer& transfer = *context.transfer;
  const size_t bytes = size * count;
  call.bytes_ += static_cast<int64_t>(bytes);
  if (call.bytes_ > call.limits_.bytes) {
    transfer.refusal =
        fmt::format("the files of a request may have {} bytes together", call.limits_.bytes);
    return 0;
  }
  long status = 0;
  curl_easy_getinfo(transfer.handle.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status == 200) transfer.body.insert(transfer.body.end(), data, data + bytes);
  return bytes;
}

// Judges a URL and lets the transfer go there next.
Status FetchCall::aim(Transfer& transfer, const std::string& url) {
  if (url.size() > kLongestUrl) return fail("the URL is longer than {} bytes", kLongestUrl);
  ParsedUrl parsed(curl_url());
  const CURLUcode code =
      curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), CURLU_DISALLOW_USER);
  if (code == CURLUE_USER_NOT_ALLOWED) return fail("a URL with a user's name is not fetched");
  if (code != CURLUE_OK) return fail("this is not a URL: {}", curl_url_strerror(code));
  const std::string scheme = part_of(parsed.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") {
    return fail("expected http or https, found \"{}\"", scheme.substr(0, 40));
  }
  const bool encrypted = scheme == "https";
  if (transfer.encrypted && !encrypted) return fail("redirected from https to http");
  const std::string host = part_of(parsed.get(), CURLUPART_HOST);
  const bool ascii = std::ranges::all_of(host, [](char c) { return c > ' ' && c < '\x7f'; });
  if (host.empty() || !ascii) return fail("the URL's host is not in ASCII; write it as xn--");
  const std::string port = part_of(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  const auto number = static_cast<uint16_t>(std::strtoul(port.c_str(), nullptr, 10));
  if (!hosts_.allows(host, number, encrypted ? 443 : 80)) {
    return fail("{}:{} is not among the hosts this server fetches from", host.substr(0, 255), port);
  }
  transfer.host = host.substr(0, 255);
  transfer.encrypted = encrypted;
  curl_easy_setopt(transfer.handle.get(), CURLOPT_CURLU, parsed.get());
  transfer.url = std::move(parsed);
  return {};
}

Status FetchCall::begin(size_t index) {
  Transfer& transfer = transfers_[index];
  Context* context = &contexts_[index];
  transfer.handle.reset(curl_easy_init());
  CURL* handle = transfer.handle.get();
  if (handle == nullptr) return fail("libcurl cannot begin a transfer");
  CACHALOT_OK(aim(transfer, urls_[index]));
  const auto set = [&](CURLoption option, auto value) {
    return curl_easy_setopt(handle, option, value) == CURLE_OK;
  };
  // Redirects are followed here, one judged hop at a time.
  const bool ready =
      set(CURLOPT_FOLLOWLOCATION, 0L) && set(CURLOPT_PROTOCOLS_STR, "http,https") &&
      set(CURLOPT_PROXY, "") && set(CURLOPT_NETRC, long{CURL_NETRC_IGNORED}) &&
      set(CURLOPT_NOSIGNAL, 1L) && set(CURLOPT_USERAGENT, "cachalot") &&
      set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits_.connect_time.count())) &&
      set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(limits_.bytes)) &&
      set(CURLOPT_QUICK_EXIT, 1L) &&  // a slow look-up of a name holds nobody up
      set(CURLOPT_OPENSOCKETFUNCTION, &FetchCall::open_socket) &&
      set(CURLOPT_OPENSOCKETDATA, context) &&
      set(CURLOPT_HEADERFUNCTION, &FetchCall::take_header) && set(CURLOPT_HEADERDATA, context) &&
      set(CURLOPT_WRITEFUNCTION, &FetchCall::take_body) && set(CURLOPT_WRITEDATA, context) &&
      set(CURLOPT_PRIVATE, context);
  if (!ready) return fail("this libcurl lacks an option that fetching needs");
  curl_multi_add_handle(multi_.get(), handle);
  ++running_;
  return {};
}

Error FetchCall::failure_of(const Transfer& transfer, CURLcode code) const {
  if (!transfer.refusal.empty()) return transfer.error(transfer.refusal);
  if (code == CURLE_FILESIZE_EXCEEDED) {
    return transfer.error(
        fmt::format("the files of a request may have {} bytes together", limits_.bytes));
  }
  return transfer.error(curl_easy_strerror(code));
}

// True: the file is there; false: it is elsewhere, and the transfer goes on to that place.
Result<bool> FetchCall::finish(Transfer& transfer, CURLcode code) {
  CURL* handle = transfer.handle.get();
  curl_multi_remove_handle(multi_.get(), handle);
  if (code != CURLE_OK) return fail(failure_of(transfer, code));
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  const char* next = nullptr;
  curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &next);
  if (is_redirect(status) && next != nullptr) {
    if (++transfer.redirects > limits_.redirects) {
      return fail(transfer.error(fmt::format("more than {} redirects", limits_.redirects)));
    }
    transfer.refusal.clear();
    const Status aimed = aim(transfer, std::string(next));
    if (!aimed) return fail(aimed.error().in(transfer.host + " redirects"));
    curl_multi_add_handle(multi_.get(), handle);
    return false;
  }
  if (status != 200) return fail(transfer.error(fmt::format("answered with status {}", status)));
  transfer.handle.reset();
  return true;
}

tl::expected<void, FetchFailure> FetchCall::take_finished() {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    Context* context = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &context);
    const auto index = static_cast<size_t>(context - contexts_.data());
    auto finished = finish(*context->transfer, code);
    if (!finished) return tl::unexpected(FetchFailure{index, std::move(finished.error())});
    if (!*finished) continue;
    done_[index] = true;
    --running_;
  }
  return {};
}

size_t FetchCall::first_unfinished() const {
  return static_cast<size_t>(std::ranges::find(done_, false) - done_.begin());
}

tl::expected<void, FetchFailure> FetchCall::run(const Abandoned& abandoned) {
  const auto stop = [&](Error error) {
    return tl::unexpected(FetchFailure{first_unfinished(), std::move(error)});
  };
  done_.resize(urls_.size());
  for (Transfer& transfer : transfers_) contexts_.push_back({this, &transfer});
  if (multi_ == nullptr) return stop({"libcurl cannot begin"});
  while (begun_ < urls_.size() || running_ > 0) {
    while (begun_ < urls_.size() && running_ < kParallel) {
      if (Status begun = begin(begun_); !begun)
        return tl::unexpected(FetchFailure{begun_, std::move(begun.error())});
      ++begun_;
    }
    int active = 0;
    if (curl_multi_perform(multi_.get(), &active) != CURLM_OK) return stop({"libcurl failed"});
    if (auto taken = take_finished(); !taken) return tl::unexpected(std::move(taken.error()));
    if (abandoned && abandoned()) return stop({"the client has gone"});
    if (Clock::now() >= deadline_) {
      return stop({fmt::format("the files of a request may take {} s together",
                               static_cast<double>(limits_.total_time.count()) / 1000)});
    }
    if (running_ > 0) curl_multi_poll(multi_.get(), nullptr, 0, kPollMilliseconds, nullptr);
  }
  return {};
}

}  // namespace

Fetcher::Fetcher(HostList hosts, FetchLimits limits, AddressPolicy allowed)
    : hosts_(std::move(hosts)), limits_(limits), allowed_(std::move(allowed)) {}

Result<std::shared_ptr<const Fetcher>> Fetcher::make(HostList hosts, FetchLimits limits,
                                                     AddressPolicy allowed) {
  static const CURLcode kInitialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (kInitialised != CURLE_OK) return fail("libcurl: {}", curl_easy_strerror(kInitialised));
  return std::shared_ptr<const Fetcher>(new Fetcher(std::move(hosts), limits, std::move(allowed)));
}

tl::expected<std::vector<std::vector<uint8_t>>, FetchFailure> Fetcher::fetch(
    std::span<const std::string> urls, const Abandoned& abandoned) const {
  if (std::ssize(urls) > limits_.files) {
    return tl::unexpected(
        FetchFailure{static_cast<size_t>(limits_.files),
                     {fmt::format("at most {} files are fetched for a request", limits_.files)}});
  }
  FetchCall call(hosts_, limits_, allowed_, urls);
  if (auto run = call.run(abandoned); !run) return tl::unexpected(std::move(run.error()));
  std::vector<std::vector<uint8_t>> bodies;
  for (size_t i = 0; i < urls.size(); ++i) bodies.push_back(std::move(call.body(i)));
  return bodies;
}

}  // namespace cachalot
