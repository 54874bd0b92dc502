// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "loader/probes/plan.h"

namespace hostrange {

// How a scope begins and ends: what its probes cost depends on that. calibration_code.S has the same numbers.
enum class EntryWay {
    kOptimisedNop,     // program scope_entry at a five-byte nop that the kernel has made a call
    kEmulated,         // ... at an instruction that it emulates
    kSingleStep,       // ... at one that it single-steps
    kStepsEmulated,    // program scope_steps at an instruction that is emulated
    kStepsSingleStep,  // ... at one that is single-stepped
    kLoneJump,         // a function that is nothing but a tail jump: one hit says both
    kMarker,           // range_begin
};
enum class EndWay {
    kRet,              // program scope_exit at ret
    kUretprobe,        // ... at a uretprobe
    kTailJump,         // ... at a jump to a function that has probes of its own and ends both scopes
    kCallee,           // ... at a jump to a function whose end is watched for this one's sake
    kJump,             // ... at a jump that ends the scope
    kStepsSingleStep,  // program scope_steps at an instruction that is single-stepped
    kStepsEmulated,    // ... at one that is emulated
    kMarker,           // range_end
};
struct ProbePair {
    EntryWay entry = EntryWay::kEmulated;
    EndWay end = EndWay::kRet;
    auto operator<=>(const ProbePair&) const = default;
};
std::string entry_way_name(EntryWay way);  // "optimised_nop" ...
std::string end_way_name(EndWay way);      // "ret" ...

// Of the scopes that an entry site opens.
struct ScopeProbes {
    ProbePair pair;
    bool shares_entry = false;  // the hit that opens it does so for another scope too, or ends one: that pays for it
};

// By index into plan.sites; of sites that open no scope: nothing of use. Of a function with ends of several kinds, that
// which most calls are likely to take: a ret before a jump.
std::vector<ScopeProbes> scope_probes_of_plan(const FilePlan& plan);

}  // namespace hostrange
