#include "bench/report_json.h"

#include "base/mapped_file.h"
#include "checkpoint/json_text.h"

namespace cachalot::bench {
namespace {

constexpr int kVersion = 1;

using Json = nlohmann::ordered_json;

Json machine_json(const Machine& machine) {
  Json peaks = Json::array(), caches = Json::array();
  for (const Peak& peak : machine.peaks) {
    peaks.push_back({{"path", peak.path},
                     {"isa", name_of(peak.isa)},
                     {"flops_per_second", peak.operations_per_second}});
  }
  for (const CacheLevel& cache : machine.caches) {
    caches.push_back({{"level", cache.level},
                      {"type", cache.type},
                      {"bytes", cache.bytes},
                      {"count", cache.count}});
  }
  if (machine.multiprocessors > 0) {
    return {{"processor", machine.processor},
            {"multiprocessors", machine.multiprocessors},
            {"read_bytes_per_second", machine.read_bytes_per_second},
            {"read_buffer_bytes", machine.read_buffer_bytes},
            {"copy_bytes_per_second", machine.copy_bytes_per_second},
            {"launch_seconds", machine.launch_seconds},
            {"peaks", peaks}};
  }
  Json json{{"processor", machine.processor},
            {"isa", name_of(machine.isa)},
            {"threads", machine.threads},
            {"read_bytes_per_second", machine.read_bytes_per_second},
            {"read_buffer_bytes", machine.read_buffer_bytes},
            {"matmul_path", machine.matmul_path},
            {"peaks", peaks},
            {"caches", caches}};
  if (machine.weights_bytes_per_second > 0) {
    json["weights_bytes_per_second"] = machine.weights_bytes_per_second;
  }
  return json;
}

Json row_json(const Row& row) {
  Json json{{"name", row.name},
            {"shape", row.shape},
            {"seconds", row.seconds},
            {"best_seconds", row.best_seconds},
            {"repetitions", row.repetitions}};
  if (!row.limit.empty()) {
    json["bytes"] = row.bytes;
    json["flops"] = row.flops;
    json["percent_of_limit"] = row.percent_of_limit;
    json["limit"] = row.limit;
  }
  if (row.tokens_per_second) json["tokens_per_second"] = *row.tokens_per_second;
  if (row.outside_streaming) json["outside_streaming"] = *row.outside_streaming;
  if (row.between_operations) json["between_operations"] = *row.between_operations;
  if (row.percent_of_weights_limit) {
    json["percent_of_weights_limit"] = *row.percent_of_weights_limit;
  }
  return json;
}

Result<OldRow> old_row(const nlohmann::json& json, std::string_view file, size_t index) {
  const auto bad = [&](std::string_view what) {
    return fail("{}: row {}: {}; is it a file that bench --json wrote?", file, index, what);
  };
  if (!json.is_object()) return bad("expected an object");
  const auto name = json.find("name"), seconds = json.find("best_seconds");
  if (name == json.end() || !name->is_string()) return bad("expected a name");
  if (seconds == json.end() || !seconds->is_number()) return bad("expected best_seconds");
  const double value = seconds->get<double>();
  if (!(value > 0)) return bad(fmt::format("expected best_seconds above 0, found {}", value));
  return OldRow{name->get<std::string>(), value};
}

}  // namespace

Comparison compare(const std::vector<OldRow>& old_rows, const std::vector<Row>& rows) {
  Comparison comparison;
  std::map<std::string, double> left;
  for (const OldRow& row : old_rows) left[row.name] = row.best_seconds;
  for (const Row& row : rows) {
    if (const auto old = left.extract(row.name)) {
      comparison.old_seconds[row.name] = old.mapped();
    } else {
      comparison.added.push_back(row.name);
    }
  }
  for (const auto& [name, seconds] : left) comparison.gone.push_back(name);
  return comparison;
}

std::string json_of(const Report& report, const Comparison* comparison) {
  Json rows = Json::array();
  for (const Row& row : report.rows) {
    Json json = row_json(row);
    if (comparison != nullptr) {
      const auto old = comparison->old_seconds.find(row.name);
      if (old != comparison->old_seconds.end()) {
        json["old_best_seconds"] = old->second;
        json["ratio"] = row.best_seconds / old->second;
      }
    }
    rows.push_back(std::move(json));
  }
  Json json{{"version", kVersion},
            {"machine", machine_json(report.machine)},
            {"model", report.model},
            {"rows", rows},
            {"notes", report.notes}};
  if (comparison != nullptr) {
    json["comparison"] = {{"new", comparison->added}, {"gone", comparison->gone}};
  }
  return json.dump(1);
}

Result<std::vector<OldRow>> parse_report(std::string_view text, std::string_view name) {
  const auto json = parse_json_strictly(text);
  if (!json) return fail(json.error().in(std::string(name)));
  const auto rows = json->is_object() ? json->find("rows") : json->end();
  if (!json->is_object() || rows == json->end() || !rows->is_array()) {
    return fail("{}: expected a report that bench --json wrote, found no list of rows", name);
  }
  std::vector<OldRow> out;
  for (const auto& row : *rows) {
    CACHALOT_TRY(OldRow old, old_row(row, name, out.size()));
    out.push_back(std::move(old));
  }
  return out;
}

Result<std::vector<OldRow>> read_report(const std::filesystem::path& file) {
  CACHALOT_TRY(const std::string text, read_text_file(file.string()));
  return parse_report(text, file.string());
}

}  // namespace cachalot::bench
