// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/options.h"

#include <limits.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <filesystem>

#include "loader/failure.h"

namespace hostrange {
namespace {

// A number and the unit that follows it; nullopt if text does not begin with a number.
struct Quantity {
    double number;
    std::string unit;
};

std::optional<Quantity> parse_quantity(const std::string& text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
    return Quantity{number, std::string(end, text.data() + text.size())};
}

}  // namespace

bool has_sidecar(const std::string& output) {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(output, error);
    return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

std::optional<double> parse_duration(const std::string& text) {
    const std::optional<Quantity> quantity = parse_quantity(text);
    if (!quantity || quantity->number <= 0) return std::nullopt;
    double factor = 0;
    if (quantity->unit == "ms") factor = 1e-3;
    if (quantity->unit.empty() || quantity->unit == "s") factor = 1;
    if (quantity->unit == "m" || quantity->unit == "min") factor = 60;
    if (quantity->unit == "h") factor = 3600;
    constexpr double kLongest_s = 366.0 * 24 * 3600;
    const double duration_s = quantity->number * factor;
    if (factor == 0 || duration_s > kLongest_s) return std::nullopt;
    return duration_s;
}

std::optional<std::size_t> parse_size(const std::string& text) {
    const std::optional<Quantity> quantity = parse_quantity(text);
    if (!quantity || quantity->number < 0) return std::nullopt;
    std::size_t factor = 0;
    if (quantity->unit.empty()) factor = 1;
    if (quantity->unit == "k" || quantity->unit == "K") factor = 1u << 10;
    if (quantity->unit == "M") factor = 1u << 20;
    if (quantity->unit == "G") factor = 1u << 30;
    constexpr double kLargest = 1e15;
    if (factor == 0 || quantity->number * factor > kLargest) return std::nullopt;
    return static_cast<std::size_t>(quantity->number * factor);
}

std::string default_probe_map() {
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    const std::filesystem::path folder = program.parent_path();
    for (const std::filesystem::path& candidate :
         {folder / "probe_map.toml", folder.parent_path() / "share/hostrange-bpf/probe_map.toml"}) {
        if (access(candidate.c_str(), R_OK) == 0) return candidate;
    }
    throw Failure(ExitCode::kProbeMap, "the default probe map was not found beside " + program.string(),
                  "name one with --probe-map FILE");
}

}  // namespace hostrange
