#include "serve_options.h"

#include <fmt/format.h>

#include <filesystem>

#include "backend/cuda/queue.h"
#include "base/mapped_file.h"
#include "engine/cache_fingerprint.h"
#include "explorer_tree.h"
#include "number_options.h"
#include "report.h"
#include "run_input.h"
#include "usage_error.h"

namespace cachalot {
namespace {

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kDigits = "0123456789";

bool consists_of(std::string_view text, const std::string& characters) {
  return !text.empty() && text.find_first_not_of(characters) == text.npos;
}

bool is_port(std::string_view text) {
  return consists_of(text, std::string(kDigits)) && text.size() <= 5 &&
         std::stoi(std::string(text)) <= 65535;
}

// scheme://host[:port], as a browser names where a page came from: without a path.
bool is_origin(std::string_view text) {
  const std::string word = fmt::format("{}{}-.", kLetters, kDigits);
  const size_t mark = text.find("://");
  if (mark == text.npos || !consists_of(text.substr(0, mark), word + "+")) return false;
  std::string_view host = text.substr(mark + 3);
  const size_t port = host.rfind(':');
  if (port != host.npos && !host.ends_with(']')) {
    if (!is_port(host.substr(port + 1))) return false;
    host = host.substr(0, port);
  }
  const bool ipv6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return ipv6
             ? consists_of(host.substr(1, host.size() - 2), std::string(kDigits) + "abcdefABCDEF:.")
             : consists_of(host, word + "_");
}

std::string origin_error(const std::string& text) {
  if (text == "*" || is_origin(text)) return "";
  return fmt::format("expected * or an origin such as https://example.org:8443, found \"{}\"",
                     text);
}

// Threads that wait for answers; HTTP itself needs one.
constexpr size_t kHandlersBesideAnswers = 64;

Status add_keys_of_file(const std::string& path, std::vector<std::string>& keys) {
  CACHALOT_TRY(const std::string text, read_text_file(path));
  const size_t before = keys.size();
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string line = text.substr(start, end - start);
    start = end + 1;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  if (keys.size() == before) return fail("{}: expected an API key per line, found none", path);
  return {};
}

std::string folder_name(const std::string& model) {
  std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  return name.empty() || name == "." ? "cachalot" : name;
}

void add_address_options(CLI::App& command, ServeOptions& options) {
  constexpr const char* kGroup = "Address and access";
  command.add_option("--host", options.host, "Address to listen on; 0.0.0.0 or :: for all")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--port", options.port, "0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--api-key", options.api_keys,
                  "Clients must send one of these keys, may be repeated")
      ->allow_extra_args(false)
      ->group(kGroup);
  command.add_option("--api-key-file", options.api_key_file, "The same from FILE, a key per line")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option("--cors", options.origins,
                  "Origin whose pages may ask (https://example.org, or *), may be repeated")
      ->allow_extra_args(false)
      ->check(origin_error)
      ->type_name("ORIGIN")
      ->group(kGroup);
  command
      .add_option("--allow-remote-images", options.image_hosts,
                  "Fetch pictures for clients by http and https from these hosts: "
                  "images.example.org, *.example.org, host:PORT; * for all. Never from private "
                  "addresses. May be repeated")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("HOST[,HOST...]")
      ->group(kGroup);
}

void add_work_options(CLI::App& command, ServeOptions& options) {
  constexpr const char* kGroup = "Requests";
  command
      .add_option("--max-sequences,--parallel", options.model.max_sequences,
                  "Requests that are answered at a time (-np as well)")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--max-queue", options.max_queue, "Requests that may wait; the next get 429")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--timeout", options.timeout,
                  "Seconds a request may take, waiting included; 0: any time")
      ->check(number_from(0, 1e9))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("-a,--alias,--served-model-name", options.aliases,
                  "Name of the model for clients (default: its folder's), may be repeated; * "
                  "takes every name")
      ->allow_extra_args(false)
      ->group(kGroup);
  command.add_flag("--no-thinking", options.no_thinking, "Answer at once unless asked to think")
      ->group(kGroup);
  command
      .add_option("--effort", options.effort,
                  fmt::format("How much to think unless a request says: {}",
                              effort_choices(EffortNames::kPublic)))
      ->group(kGroup);
}

void add_cache_options(CLI::App& command, ServeOptions& options) {
  constexpr const char* kGroup = "Prompts that begin alike";
  command
      .add_option("--prefix-cache", options.prefix_cache,
                  "Keep what prompts and answers computed for those that begin alike, up to SIZE "
                  "in memory; 0 keeps nothing")
      ->transform(size_in_bytes())
      ->default_str("1GiB")
      ->type_name("SIZE")
      ->group(kGroup);
  command
      .add_option("--cache-dir", options.cache_directory,
                  "Keep it in FOLDER as well, over restarts, for this model alone")
      ->type_name("FOLDER")
      ->group(kGroup);
  command.add_option("--cache-disk", options.cache_disk, "Most bytes in that folder")
      ->transform(size_in_bytes())
      ->default_str("64GiB")
      ->type_name("SIZE")
      ->group(kGroup);
  command
      .add_option("--snapshot-interval", options.snapshot_interval,
                  "Tokens between the places of a long prompt that others can go on from")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(kGroup);
}

}  // namespace

void add_serve_options(CLI::App& command, ServeOptions& options) {
  options.model.max_sequences = 16;
  add_model_option(command, options.model);
  // The file has become arguments before these are read (config_arguments.h).
  command.add_option("--config", options.config, "Read options from FILE: lines of NAME = VALUE")
      ->type_name("FILE");
  add_address_options(command, options);
  add_work_options(command, options);
  add_cache_options(command, options);
  command.add_flag("--metrics,!--no-metrics", options.metrics, "Offer /metrics (the default)")
      ->group("Watching");
  command
      .add_flag("--explore", options.explore,
                "Let clients look into steps of the model: /v1/trace, and on the page /explore")
      ->group("Watching");
  command
      .add_option("--log-format", options.log_format,
                  "How a request is logged on stderr: text, json, none")
      ->check(CLI::IsMember({"text", "json", "none"}))
      ->capture_default_str()
      ->group("Watching");
  add_sampling_options(command, options.sampling);
  add_engine_options(command, options.model);
  add_prefill_options(command, options.model);
  add_storage_options(command, options.model.storage);
  add_draft_options(command, options.drafts);
}

Result<OpenedModel> open_served_model(const ServeOptions& options) {
  ModelOptions model = options.model;
  model.watchable = options.explore;
  if (options.explore && model.backend != "cpu") {
    usage_error("--explore: looks into --backend cpu, found {}", model.backend);
  }
  ChatOptions chat;
  if (options.effort) {
    if (const Status status = apply_effort(chat, *options.effort, options.no_thinking); !status) {
      usage_error(status.error().in("--effort"));
    }
  }
  if (model.gpu.asked_for()) CACHALOT_OK(cuda::find_device());
  CACHALOT_TRY(OpenedModel opened, open_model(model));
  const ModelConfig& config = opened.checkpoint->config();
  or_usage_error(
      draft_parameters(options.drafts, config.has_drafts() ? config.dspark_block_size : 0));
  return opened;
}

Result<ApiServerOptions> api_server_options(const ServeOptions& options) {
  ApiServerOptions result;
  result.http.host = options.host;
  result.http.port = options.port;
  result.http.threads =
      static_cast<size_t>(options.model.max_sequences + options.max_queue) + kHandlersBesideAnswers;
  result.api_keys = options.api_keys;
  if (!options.api_key_file.empty()) {
    const Status status = add_keys_of_file(options.api_key_file, result.api_keys);
    if (!status) return fail(status.error().in("--api-key-file"));
  }
  result.origins = options.origins;
  result.metrics = options.metrics;
  result.traces = options.explore;
  result.version = CACHALOT_VERSION;
  result.explorer = [model = options.model.model] { return explorer_tree(model); };
  if (options.log_format == "none") return result;
  const LogFormat format = options.log_format == "json" ? LogFormat::json : LogFormat::text;
  result.http.log = [format](const HttpAccess& access) {
    report("{}", access_line(access, format));
  };
  return result;
}

Result<std::shared_ptr<const Fetcher>> image_fetcher(const ServeOptions& options) {
  if (options.image_hosts.empty()) return nullptr;
  auto hosts = HostList::parse(options.image_hosts);
  if (!hosts) usage_error(hosts.error().in("--allow-remote-images"));
  auto fetcher = Fetcher::make(std::move(*hosts));
  if (!fetcher) return fail(fetcher.error().in("--allow-remote-images"));
  return std::move(*fetcher);
}

Result<ModelServiceOptions> model_service_options(const ServeOptions& options,
                                                  const LoadedModel& model) {
  CACHALOT_TRY(const AnswerParameters parameters,
               answer_parameters(options.sampling, model.generation, model.config().vocab_size));
  ModelServiceOptions result;
  ServiceDefaults& defaults = result.defaults;
  defaults.model_names = options.aliases;
  if (defaults.model_names.empty() || defaults.model_names.front() == "*")
    defaults.model_names.insert(defaults.model_names.begin(), folder_name(options.model.model));
  defaults.sampling = parameters.generation.sampling;
  defaults.seed = options.sampling.seed;
  defaults.stops = parameters.stops;
  defaults.max_tokens = parameters.generation.max_tokens;
  defaults.timeout_seconds = options.timeout;
  ChatOptions chat;
  chat.thinking = !options.no_thinking;
  if (options.effort) CACHALOT_OK(apply_effort(chat, *options.effort, options.no_thinking));
  defaults.thinking = chat.thinking;
  defaults.effort = chat.effort;
  result.end_tokens = parameters.generation.end_tokens;
  result.prefill = options.model.prefill_mode();
  result.scheduler.max_queue = options.max_queue;
  result.scheduler.snapshot_interval = options.snapshot_interval;
  PrefixCacheOptions& cache = result.scheduler.cache;
  cache.bytes = options.prefix_cache;
  if (!options.cache_directory.empty()) {
    cache.directory = options.cache_directory;
    cache.disk_bytes = options.cache_disk;
    cache.fingerprint = cache_fingerprint(*model.checkpoint, *model.engine);
  }
  const int64_t block = model.config().has_drafts() ? model.config().dspark_block_size : 0;
  CACHALOT_TRY(result.scheduler.drafts, draft_parameters(options.drafts, block));
  return result;
}

}  // namespace cachalot
