#include "preprocess_command.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/written_file.h"
#include "report.h"
#include "vision/preprocess.h"

namespace cachalot {
namespace {

struct PreprocessOptions {
  std::string file, out;
  ImageBudget budget;
  ImageDecodeOptions decode;
};

Status preprocess(const PreprocessOptions& options) {
  if (!options.out.empty()) CACHALOT_OK(check_writable(options.out));
  CACHALOT_TRY(const MappedFile mapped, MappedFile::open(options.file));
  const auto bytes = mapped.bytes();
  auto prepared = prepare_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                options.budget, options.decode);
  if (!prepared) return fail(prepared.error().in(options.file));
  const std::vector<uint8_t>& rgb = prepared->padded.rgb;
  if (!options.out.empty()) {
    CACHALOT_OK(write_text_file(
        options.out, std::string_view(reinterpret_cast<const char*>(rgb.data()), rgb.size())));
  }
  const ImagePlan& plan = prepared->plan;
  fmt::print("{} x {} pixels, grid of {} x {}, {} tokens\n", plan.width, plan.height,
             plan.grid_width, plan.grid_height, plan.tokens());
  return {};
}

}  // namespace

void add_preprocess_command(CLI::App& app) {
  auto options = std::make_shared<PreprocessOptions>();
  CLI::App* command = app.add_subcommand(
      "preprocess", "Show a picture's size, grid and tokens; write what the model sees of it");
  command->add_option("file", options->file, "A JPEG, PNG, WebP or GIF file")->required();
  command->add_option("--out", options->out,
                      "Write the padded pixels here: height x width x RGB, one byte each");
  command->add_option("--min-pixels", options->budget.min_pixels, "Enlarge smaller pictures")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str();
  command->add_option("--max-tokens", options->budget.max_tokens, "Reduce pictures that need more")
      ->check(CLI::Range(kSmallestTokens, kLargestTokens))
      ->capture_default_str();
  command->add_flag("--honour-orientation", options->decode.honour_orientation,
                    "Turn the picture as its EXIF block says (the model's own loader does not)");
  command->callback([options] {
    const Status status = preprocess(*options);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace cachalot
