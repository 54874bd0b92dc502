// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "bpf/hostrange.h"
#include "loader/collect/call_tree.h"

namespace hostrange {

// "cold", "warm", or any other name that a marker gave; a number of MarkLog's.
enum class Phase : std::uint32_t { kCold = 0, kWarm = 1 };

// A duration that a target has measured itself.
struct Measurement {
    ProcessKey process;
    std::string name;
    Phase phase = Phase::kWarm;
    std::uint64_t count = 0;
    double mean_ns = 0, median_ns = 0;
};

// A test, or whatever a target calls a case. Runs of the same one (reruns, workers) are one case.
struct MarkedCase {
    std::string nodeid, operator_name, backend;
    std::uint64_t runs = 0;
    bool has_phases = false;                // a phase was begun in it: calls outside of phases are not reported
    std::vector<Measurement> measurements;  // the last of each name and phase
};

// What went wrong with marks.
struct MarkLosses {
    std::uint64_t malformed = 0;   // records that are none
    std::uint64_t unreadable = 0;  // texts or numbers that the kernel could not read
    std::uint64_t cut = 0;         // texts longer than what is read of them; they end in an ellipsis
    std::uint64_t unbalanced = 0;  // cases or phases begun within another one, or ended without having begun
};

// What the markers of all processes have said, by time.
class MarkLog {
public:
    static constexpr std::uint32_t kNoCase = 0;
    static constexpr std::uint32_t kNoPhase = UINT32_MAX;

    // What is in force in a process at one time.
    struct Moment {
        std::uint64_t run = 0;  // of the case: unlike that of any other run; 0 outside of cases
        std::uint32_t test_case = kNoCase;
        std::uint32_t phase = kNoPhase;
    };

    // Takes one record of the ring `marks`. Names of ranges are handed on.
    std::function<void(std::uint32_t number, const std::string& name)> on_range_name;
    void add(std::span<const std::byte> record);

    Moment at(const ProcessKey& process, std::uint64_t time_ns) const;

    // Number 0 stands for no case. In the order in which they were first begun.
    const std::vector<MarkedCase>& cases() const { return cases_; }
    bool has_cases() const { return cases_.size() > 1; }
    std::string_view phase_name(Phase phase) const;
    std::uint64_t sessions() const { return sessions_; }
    const MarkLosses& losses() const { return losses_; }

private:
    struct Change {
        std::uint64_t from_ns;
        Moment moment;
    };
    struct Texts {
        std::string text[HOSTRANGE_MARK_TEXTS];
    };

    void change(const hostrange_mark& mark, const std::function<void(Moment&)>& how);
    std::uint32_t case_number(Texts texts);
    Phase phase_number(const std::string& name);

    std::vector<MarkedCase> cases_ = std::vector<MarkedCase>(1);
    std::map<std::tuple<std::string, std::string, std::string>, std::uint32_t> case_numbers_;
    std::vector<std::string> phase_names_ = {"cold", "warm"};
    std::map<ProcessKey, std::vector<Change>> changes_;  // by time
    std::unordered_map<std::uint32_t, Texts> pieces_;    // by thread id: of the mark to come
    std::uint64_t runs_ = 0, sessions_ = 0;
    MarkLosses losses_;
};

}  // namespace hostrange
