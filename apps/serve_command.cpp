#include "serve_command.h"

#include <cstdlib>
#include <future>
#include <memory>

#include "bench/machine.h"
#include "report.h"
#include "serve_options.h"
#include "service_notify.h"
#include "stop_signals.h"
#include "usage_error.h"

namespace cachalot {
namespace {

using namespace std::chrono_literals;

// What the parts of a live step are held against.
Result<std::shared_ptr<const LiveExplorer>> live_explorer(const ServeOptions& options) {
  auto live = std::make_shared<LiveExplorer>();
  CACHALOT_TRY(live->explorer, explore(options.model.model, {}));
  CACHALOT_TRY(const Isa isa,
               options.model.isa.empty() ? isa_from_environment() : choose_isa(options.model.isa));
  ThreadTeam team(options.model.threads);
  const bench::Machine machine = bench::measure_machine(team, isa, {.all_paths = false});
  live->bytes_per_second = machine.read_bytes_per_second;
  live->operations_per_second = machine.peak(machine.matmul_path);
  return std::shared_ptr<const LiveExplorer>(std::move(live));
}

Result<std::unique_ptr<ModelService>> load_service(const ServeOptions& options, OpenedModel opened,
                                                   std::shared_ptr<const Fetcher> fetcher,
                                                   ApiServer& server) {
  ModelOptions local = options.model;
  // Clients send pictures; they do not name files of this machine.
  local.local_pictures = false;
  local.fetcher = std::move(fetcher);
  local.on_progress = [&server](double share) { server.set_progress(share); };
  CACHALOT_TRY(LoadedModel model, load_model(local, opened));
  ModelServiceOptions service = or_usage_error(model_service_options(options, model));
  if (options.explore) {
    CACHALOT_TRY(service.explorer, live_explorer(options));
  }
  return std::make_unique<ModelService>(std::move(model.tokenizer), std::move(model.engine),
                                        std::move(model.pictures), std::move(service));
}

// The address as a browser takes it.
std::string url(const ServeOptions& options, uint16_t port) {
  const bool ipv6 = options.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", ipv6 ? "[" : "", options.host, ipv6 ? "]" : "", port);
}

void report_ready(const ServeOptions& options, const ModelService& service, double seconds) {
  report("ready after {:.2f} s: {} | {} | {} sequences of {} tokens | drafts {}\n", seconds,
         fmt::join(service.defaults().model_names, ", "), service.engine().description(),
         options.model.max_sequences, service.defaults().context, options.drafts.drafts);
}

// What was accepted is answered, unless a second signal comes.
void drain(ApiServer& server) {
  report("stopping: answering what has been accepted; a second signal ends it at once\n");
  server.set_stopping();
  auto drained = std::async(std::launch::async, [&] { return server.http().drain(24h * 365); });
  while (drained.wait_for(0s) != std::future_status::ready)
    if (stop_signal_within(50ms)) server.http().stop();
  report("stopped\n");
}

Result<int> serve(const ServeOptions& options) {
  block_stop_signals();
  const auto start = std::chrono::steady_clock::now();
  CACHALOT_TRY(OpenedModel opened, open_served_model(options));
  CACHALOT_TRY(ApiServerOptions settings, api_server_options(options));
  CACHALOT_TRY(const std::shared_ptr<const Fetcher> fetcher, image_fetcher(options));
  // Outlives the server, whose handlers use it.
  std::unique_ptr<ModelService> service;
  CACHALOT_TRY(const auto server, ApiServer::start(std::move(settings)));
  report("cachalot {}: loading {}; listening on {}\n", CACHALOT_VERSION, options.model.model,
         url(options, server->port()));
  auto loading = std::async(std::launch::async, [&] {
    return load_service(options, std::move(opened), fetcher, *server);
  });
  while (loading.wait_for(0s) != std::future_status::ready) {
    if (!stop_signal_within(20ms)) continue;
    // Loading cannot be broken off, and has changed nothing.
    report("stopped while loading\n");
    std::_Exit(0);
  }
  CACHALOT_TRY(service, loading.get());
  server->set_service(service.get());
  notify_service_manager("READY=1");
  report_ready(options, *service,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  while (!stop_signal_within(1h)) {
  }
  notify_service_manager("STOPPING=1");
  drain(*server);
  server->http().stop();
  service->drain();
  CACHALOT_OK(save_expert_profile(options.model.storage, service->engine()));
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "Answer over HTTP: OpenAI's API and a web page");
  command->footer(
      "SIGTERM and SIGINT let running answers end; a second one ends them. Requests are logged on\n"
      "stderr, without what was said. docs/serving.md describes the endpoints.");
  add_serve_options(*command, *options);
  command->callback([options] {
    const Result<int> code = serve(*options);
    if (!code) report("error: {}\n", code.error().message);
    const int exit_code = code ? *code : 1;
    if (exit_code != 0) throw CLI::RuntimeError(exit_code);
  });
}

}  // namespace cachalot
