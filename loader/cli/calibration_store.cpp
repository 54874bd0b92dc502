// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/calibration_store.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <vector>

#include "loader/failure.h"
#include "loader/probes/elf_file.h"
#include "loader/report/report.h"

namespace hostrange {
namespace {

// By so much calibrations may differ and still be said to agree.
constexpr double kAgreement = 0.04;

// Root's alone, and empty after a boot, as it should be: another boot may be on another machine.
constexpr const char* kFolder = "/run/hostrange-bpf";

std::string file_for(AttachMode mode) {
    return std::string(kFolder) + "/calibration-" + attach_mode_name(mode) + ".json";
}

std::string first_line(const char* path, const std::string& beginning = "") {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(beginning)) return line;
    return "";
}

// A calibration holds for this and nothing else.
nlohmann::ordered_json circumstances(AttachMode mode) {
    utsname name{};
    uname(&name);
    return {{"program", read_build_id("/proc/self/exe")},
            {"kernel", std::string(name.release) + " " + name.version},
            {"boot", first_line("/proc/sys/kernel/random/boot_id")},
            {"cpu", first_line("/proc/cpuinfo", "model name")},
            {"attach", attach_mode_name(mode)}};
}

std::optional<StoredCalibration> read_stored(AttachMode mode) {
    std::ifstream file(file_for(mode));
    if (!file) return std::nullopt;
    const auto json = nlohmann::ordered_json::parse(file, nullptr, false);
    if (!json.is_object() || !json.contains("circumstances") || !json.contains("time") || !json.contains("calibration"))
        return std::nullopt;
    if (json["circumstances"] != circumstances(mode) || !json["time"].is_number_integer()) return std::nullopt;
    const long age_s = std::time(nullptr) - json["time"].get<long>();
    if (age_s < 0 || age_s > kFreshSeconds) return std::nullopt;
    std::optional<Calibration> calibration = parse_calibration(json["calibration"]);
    if (!calibration) return std::nullopt;
    return StoredCalibration{std::move(*calibration), age_s};
}

// What cannot be kept is measured again the next time.
void keep(AttachMode mode, const Calibration& calibration) {
    mkdir(kFolder, 0755);
    const nlohmann::ordered_json json = {{"circumstances", circumstances(mode)},
                                         {"time", std::time(nullptr)},
                                         {"calibration", calibration_json(calibration)}};
    try {
        write_atomically(file_for(mode), json.dump(2) + "\n");
    } catch (const Failure&) {
    }
}

template <typename Way>
std::optional<Way> way_of(const std::string& wanted, std::string (*name_of)(Way), Way last) {
    for (int i = 0; i <= static_cast<int>(last); ++i)
        if (name_of(static_cast<Way>(i)) == wanted) return static_cast<Way>(i);
    return std::nullopt;
}

}  // namespace

nlohmann::ordered_json calibration_json(const Calibration& calibration) {
    nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
    for (const auto& [pair, cost] : calibration.pairs) {
        pairs.push_back({{"entry", entry_way_name(pair.entry)},
                         {"end", end_way_name(pair.end)},
                         {"bias_ns", cost.bias_ns},
                         {"bias_spread_ns", cost.bias_spread_ns},
                         {"full_ns", cost.full_ns},
                         {"full_spread_ns", cost.full_spread_ns}});
    }
    return {{"seconds", calibration.seconds}, {"lost_scopes", calibration.lost_scopes}, {"pairs", std::move(pairs)}};
}

std::optional<Calibration> parse_calibration(const nlohmann::ordered_json& json) {
    Calibration calibration;
    try {
        calibration.seconds = json.at("seconds").get<double>();
        calibration.lost_scopes = json.at("lost_scopes").get<std::uint64_t>();
        for (const auto& one : json.at("pairs")) {
            const auto entry = way_of(one.at("entry").get<std::string>(), entry_way_name, EntryWay::kMarker);
            const auto end = way_of(one.at("end").get<std::string>(), end_way_name, EndWay::kMarker);
            if (!entry || !end) return std::nullopt;
            calibration.pairs[{*entry, *end}] = {
                one.at("bias_ns").get<double>(), one.at("bias_spread_ns").get<double>(),
                one.at("full_ns").get<double>(), one.at("full_spread_ns").get<double>()};
        }
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    }
    if (calibration.pairs.empty()) return std::nullopt;
    return calibration;
}

Calibration agreed_calibration(AttachMode mode) {
    constexpr unsigned kRounds = 20;
    constexpr int kMostTries = 6;
    Calibration earlier = calibrate({.mode = mode, .rounds = kRounds});
    for (int tries = 1; tries < kMostTries; ++tries) {
        Calibration later = calibrate({.mode = mode, .rounds = kRounds});
        const bool agree = drift(earlier, later) <= kAgreement;
        later.seconds += earlier.seconds;
        later.lost_scopes += earlier.lost_scopes;
        if (agree) {
            for (auto& [pair, cost] : later.pairs) {
                const auto found = earlier.pairs.find(pair);
                if (found == earlier.pairs.end()) continue;
                cost.bias_ns = (cost.bias_ns + found->second.bias_ns) / 2;
                cost.full_ns = (cost.full_ns + found->second.full_ns) / 2;
                cost.bias_spread_ns = std::max(cost.bias_spread_ns, found->second.bias_spread_ns);
                cost.full_spread_ns = std::max(cost.full_spread_ns, found->second.full_spread_ns);
            }
            return later;
        }
        earlier = std::move(later);
    }
    return earlier;
}

double drift_since(const Calibration& earlier, AttachMode mode) {
    constexpr unsigned kRounds = 10;
    constexpr int kMostTries = 4;
    double least = HUGE_VAL;
    for (int tries = 0; tries < kMostTries && least > kAgreement; ++tries)
        least = std::min(least, drift(earlier, calibrate({.mode = mode, .rounds = kRounds})));
    return least;
}

StoredCalibration stored_or_new_calibration(AttachMode mode) {
    if (std::optional<StoredCalibration> stored = read_stored(mode)) return std::move(*stored);
    StoredCalibration made{agreed_calibration(mode)};
    keep(mode, made.calibration);
    return made;
}

std::optional<StoredCalibration> kept_calibration() {
    for (const AttachMode mode : {AttachMode::kUprobeMulti, AttachMode::kPerfEvent})
        if (std::optional<StoredCalibration> stored = read_stored(mode)) return stored;
    return std::nullopt;
}

ProbeCost probe_cost(const Calibration& calibration, const ScopeProbes& probes) {
    const PairCost* const cost = calibration.cost(probes.pair);
    if (!cost) return {};
    double full_ns = cost->full_ns;
    if (probes.shares_entry) {
        // Half of what two hits of this kind cost.
        const bool is_stepped = probes.pair.entry == EntryWay::kStepsSingleStep;
        const PairCost* const two_hits =
            calibration.cost({probes.pair.entry, is_stepped ? EndWay::kStepsSingleStep : EndWay::kStepsEmulated});
        if (two_hits) full_ns -= two_hits->full_ns / 2;
    }
    return {std::llround(cost->bias_ns), std::llround(full_ns)};
}

double drift(const Calibration& earlier, const Calibration& later) {
    std::vector<double> changes;
    for (const auto& [pair, cost] : earlier.pairs) {
        const auto again = later.pairs.find(pair);
        if (again != later.pairs.end() && cost.full_ns > 0)
            changes.push_back(std::abs(again->second.full_ns / cost.full_ns - 1));
    }
    if (changes.empty()) return 0;
    std::nth_element(changes.begin(), changes.begin() + changes.size() / 2, changes.end());
    return changes[changes.size() / 2];
}

}  // namespace hostrange
