// The model's tree for the explorer's page: GET /explore/model.json.
#include <mutex>

#include "server/reply.h"
#include "server/router.h"

namespace cachalot {
namespace {

// Made at the first request: most servers are never asked.
class Tree {
 public:
  explicit Tree(ExplorerSource source) : source_(std::move(source)) {}

  const Result<std::string>& json() {
    std::call_once(once_, [this] { json_ = source_(); });
    return json_;
  }

 private:
  ExplorerSource source_;
  std::once_flag once_;
  Result<std::string> json_;
};

}  // namespace

void add_explore_routes(Router& router, ExplorerSource source) {
  if (!source) return;
  const auto tree = std::make_shared<Tree>(std::move(source));
  router.add("GET", "/explore/model.json",
             [tree](Service&, HttpExchange& exchange, const std::string&) {
               const Result<std::string>& json = tree->json();
               if (!json) return send_error(exchange, ApiError(500, json.error().message));
               exchange.send(200, "application/json", *json);
             });
}

}  // namespace cachalot
