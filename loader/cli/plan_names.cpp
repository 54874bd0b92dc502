// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/plan_names.h"

namespace hostrange {

const char* site_kind_name(SiteKind kind) {
    switch (kind) {
        case SiteKind::kEntry:
            return "entry";
        case SiteKind::kRet:
            return "ret";
        case SiteKind::kTailJump:
            return "tail_jump";
        case SiteKind::kReturn:
            return "uretprobe";
        case SiteKind::kCalleeEnd:
            return "callee_end";
        case SiteKind::kInlinedEntry:
            return "inlined_entry";
        case SiteKind::kInlinedEnd:
            return "inlined_end";
        case SiteKind::kBegin:
            return "begin";
        case SiteKind::kEnd:
            return "end";
        case SiteKind::kCatch:
            break;
    }
    return "exception_landing";
}

const char* instruction_class_name(InstructionClass instruction_class) {
    switch (instruction_class) {
        case InstructionClass::kOptimisedNop:
            return "optimised_nop";
        case InstructionClass::kEmulated:
            return "emulated";
        case InstructionClass::kSingleStep:
            break;
    }
    return "single_step";
}

const char* why_there(const Site& site, const PlannedFunction& function) {
    switch (site.kind) {
        case SiteKind::kEntry:
            return site.file_offset == function.file_offset ? "first_instruction" : "cheapest_of_entry";
        case SiteKind::kRet:
            return "returns_here";
        case SiteKind::kTailJump:
            return site.continues ? "scope_goes_on" : "leaves_by_jump";
        case SiteKind::kReturn:
            return "asked_for";
        case SiteKind::kCalleeEnd:
            return "returns_for_caller";
        case SiteKind::kInlinedEntry:
            return "inlined_begins";
        case SiteKind::kInlinedEnd:
            return "inlined_is_left";
        case SiteKind::kBegin:
        case SiteKind::kEnd:
            return "point_of_map";
        case SiteKind::kCatch:
            break;
    }
    return "exceptions_land";
}

const char* placement_name(PlannedFunction::Kind kind) {
    switch (kind) {
        case PlannedFunction::Kind::kFunction:
            return "function";
        case PlannedFunction::Kind::kInlined:
            return "inlined";
        case PlannedFunction::Kind::kPoint:
            break;
    }
    return "point";
}

nlohmann::ordered_json inlined_json(const ProbeMap& map, const FilePlan& plan) {
    nlohmann::ordered_json result = nlohmann::ordered_json::array();
    for (const InlinedCount& count : plan.inlined) {
        result.push_back({{"range", map.ranges[count.range].name},
                          {"name", count.name},
                          {"placed", count.placed},
                          {"doubtful", count.doubtful},
                          {"total", count.total}});
    }
    return result;
}

}  // namespace hostrange
