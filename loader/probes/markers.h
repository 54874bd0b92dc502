// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loader/probes/instruction.h"
#include "loader/probes/process_maps.h"

namespace hostrange {

// The markers of lib/include/hostrange/markers.h.
enum class MarkerKind {
    kSessionBegin,
    kSessionEnd,
    kCaseBegin,
    kCaseEnd,
    kPhaseBegin,
    kPhaseEnd,
    kRangeBegin,
    kRangeEnd,
    kMeasurement,
    kPause,
    kResume,
    kProbed,  // has no code that is run: its semaphore tells the target that probes are in place
};
std::string_view marker_name(MarkerKind kind);  // "session_begin" ...

// Where a marker is probed.
struct MarkerSite {
    MarkerKind kind;
    std::uint64_t file_offset = 0;
    std::uint64_t semaphore_offset = 0;  // in the file; 0 if it has none
    Instruction instruction;
};

struct MarkerPlan {
    std::vector<MarkerSite> sites;
    std::vector<std::string> warnings;  // markers of this provider that are not what they should be
};

class ElfFile;

// The markers in a file. Of the three no-ops at a marker's site, the one that the kernel makes a call of, if the site
// is what lib/markers/markers.c makes; else the instruction that the note names. Never throws for what the file
// contains.
MarkerPlan plan_markers(const ElfFile& file, const KernelNops& kernel);
MarkerPlan plan_markers(const MappedFile& file, const KernelNops& kernel);

}  // namespace hostrange
