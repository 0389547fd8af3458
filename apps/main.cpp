#include <fmt/format.h>

int main() { fmt::print("cachalot {}\n", CACHALOT_VERSION); }
