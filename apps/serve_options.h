// The flags of `cachalot serve`, from the command line or a file.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "access_log.h"
#include "draft_options.h"
#include "model_loader.h"
#include "sampling_options.h"
#include "server/api_server.h"
#include "server/model_service.h"

namespace cachalot {

struct ServeOptions {
  ModelOptions model;
  SamplingOptions sampling;
  DraftOptions drafts;
  std::string config;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> origins;
  std::vector<std::string> image_hosts;
  std::vector<std::string> aliases;
  int64_t max_queue = 1024;
  double timeout = 0;
  int64_t prefix_cache = int64_t{1} << 30;
  std::string cache_directory;
  int64_t cache_disk = int64_t{64} << 30;
  int64_t snapshot_interval = 2048;
  bool metrics = true;
  bool explore = false;
  std::string log_format = "text";
  bool no_thinking = false;
  std::optional<std::string> effort;
};

void add_serve_options(CLI::App& command, ServeOptions& options);

// Before anything listens or is loaded: what the checkpoint's headers, the GPU that was asked for
// and the options themselves can say.
Result<OpenedModel> open_served_model(const ServeOptions& options);

// Errors: a key file that cannot be read or holds no key, an empty key.
Result<ApiServerOptions> api_server_options(const ServeOptions& options);

// What fetches pictures for clients; nullptr unless hosts are allowed. Errors: an entry that is no
// host, a program without libcurl.
Result<std::shared_ptr<const Fetcher>> image_fetcher(const ServeOptions& options);

// Errors: values that do not suit the model.
Result<ModelServiceOptions> model_service_options(const ServeOptions& options,
                                                  const LoadedModel& model);

}  // namespace cachalot
