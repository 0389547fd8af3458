#include "vision/size_plan.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace cachalot {
namespace {

constexpr int64_t kDelimiters = 2;  // start and end

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

void set_grid(ImagePlan& plan, const ImageBudget& budget) {
  plan.grid_width = ceil_divide(plan.width / budget.patch, budget.downsample);
  plan.grid_height = ceil_divide(plan.height / budget.patch, budget.downsample);
}

// The largest size with the picture's ratio whose grid fits: grid_height * (grid_width + 1) is what
// the rows may take, with grid_height = ratio * grid_width.
void shrink(double w, double h, const ImageBudget& budget, ImagePlan& plan) {
  const int64_t cell = budget.patch * budget.downsample;
  const int64_t rows = budget.max_tokens - kDelimiters;
  const double ratio = h / w;
  const double columns_fit = std::sqrt(static_cast<double>(rows) / ratio + 0.25) - 0.5;
  const double rows_fit = columns_fit * ratio;
  if (columns_fit < 1) {
    plan.width = cell;
    plan.height = rows / 2 * cell;
    return;
  }
  if (rows_fit < 1) {
    plan.width = (rows - 1) * cell;
    plan.height = cell;
    return;
  }
  const auto side = static_cast<double>(cell), patch = static_cast<double>(budget.patch);
  const double scale =
      std::min(std::floor(columns_fit) * side / w, std::floor(rows_fit) * side / h);
  plan.width = static_cast<int64_t>(std::floor(w * scale / patch)) * budget.patch;
  plan.height = static_cast<int64_t>(std::floor(h * scale / patch)) * budget.patch;
}

}  // namespace

Result<ImagePlan> plan_image(int64_t width, int64_t height, const ImageBudget& budget) {
  CACHALOT_CHECK(width > 0 && height > 0);
  if (budget.max_tokens < kSmallestTokens || budget.max_tokens > kLargestTokens) {
    return fail("a picture's tokens must be limited to {}..{}, found {}", kSmallestTokens,
                kLargestTokens, budget.max_tokens);
  }
  if (budget.min_pixels < 0 || budget.min_pixels > int64_t{1} << 32) {
    return fail("the fewest pixels of a picture must be 0..2^32, found {}", budget.min_pixels);
  }
  auto w = static_cast<double>(width), h = static_cast<double>(height);
  if (width * height < budget.min_pixels) {
    const double scale =
        std::sqrt(static_cast<double>(budget.min_pixels) / static_cast<double>(width * height));
    w = std::floor(w * scale);
    h = std::floor(h * scale);
  }
  ImagePlan plan;
  plan.width = ceil_divide(static_cast<int64_t>(w), budget.patch) * budget.patch;
  plan.height = ceil_divide(static_cast<int64_t>(h), budget.patch) * budget.patch;
  set_grid(plan, budget);
  if (plan.tokens() > budget.max_tokens) {
    shrink(w, h, budget, plan);
    set_grid(plan, budget);
  }
  if (plan.width <= 0 || plan.height <= 0 || plan.tokens() > budget.max_tokens) {
    return fail("a picture of {} x {} pixels cannot be fitted into {} tokens", width, height,
                budget.max_tokens);
  }
  return plan;
}

}  // namespace cachalot
