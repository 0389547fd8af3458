// Paths and methods -> handlers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"
#include "server/service.h"

namespace cachalot {

// `parameter`: what stood in place of {} in the path.
using ApiHandler =
    std::function<void(Service& service, HttpExchange& exchange, const std::string& parameter)>;

class Router {
 public:
  // `path` may end in "/{}": one more non-empty part, percent-decoded.
  void add(std::string method, std::string path, ApiHandler handler);
  // The same path under "", /v1 and /beta; `path` begins with a slash.
  void add_api(const std::string& method, const std::string& path, const ApiHandler& handler);

  struct Match {
    const ApiHandler* handler = nullptr;  // nullptr: none for this method
    std::string parameter;
    std::vector<std::string> methods;  // that the path has; empty: no such path
  };
  Match find(std::string_view method, std::string_view path) const;

 private:
  std::map<std::string, std::map<std::string, ApiHandler>, std::less<>> routes_;
};

// The endpoints, one function per family.
void add_chat_routes(Router& router);        // chat_api.h: /chat/completions
void add_completion_routes(Router& router);  // completions_api.h: /completions
void add_model_routes(Router& router);       // models, tokenize, detokenize, apply-template
void add_operation_routes(Router& router, bool metrics);  // metrics, slots, props
void add_responses_routes(Router& router);                // responses_api.h: /responses
void add_messages_routes(Router& router);                 // messages_api.h: /messages, count_tokens

// What makes the tree of the model's parts as JSON (inspect/), asked once.
using ExplorerSource = std::function<Result<std::string>()>;
// explore_api.cpp: /explore/model.json; without a source there is none.
void add_explore_routes(Router& router, ExplorerSource source);
// trace_api.cpp: /trace, for a service with a live_explorer().
void add_trace_routes(Router& router);

}  // namespace cachalot
