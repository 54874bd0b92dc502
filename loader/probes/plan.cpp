// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "loader/probes/elf_file.h"
#include "loader/probes/file_planner.h"
#include "loader/probes/function_parts.h"
#include "loader/probes/symbol_matching.h"

namespace hostrange {

namespace {

FilePlan plan_header(const MappedFile& file) {
    FilePlan plan;
    plan.path = file.path;
    plan.open_path = file.open_path;
    plan.identity = file.identity;
    return plan;
}

// Of /proc/PID/map_files/… and the like: where the process has its files.
std::string root_of(const std::string& open_path) {
    const std::string proc = "/proc/";
    const std::size_t slash = open_path.find('/', proc.size());
    if (open_path.compare(0, proc.size(), proc) != 0 || slash == std::string::npos) return "";
    return open_path.substr(0, slash) + "/root";
}

}  // namespace

bool opens_scope(SiteKind kind) {
    return kind == SiteKind::kEntry || kind == SiteKind::kInlinedEntry || kind == SiteKind::kBegin;
}

int site_order(SiteKind kind) {
    switch (kind) {
        case SiteKind::kEnd:
            return 0;
        case SiteKind::kInlinedEnd:
            return 1;
        case SiteKind::kRet:
        case SiteKind::kTailJump:
        case SiteKind::kReturn:
            return 2;
        case SiteKind::kCalleeEnd:
            return 3;
        case SiteKind::kCatch:
        case SiteKind::kEntry:
            return 4;
        case SiteKind::kInlinedEntry:
            return 5;
        case SiteKind::kBegin:
            break;
    }
    return 6;
}

bool FilePlan::has_range_sites() const {
    return std::any_of(sites.begin(), sites.end(), [](const Site& site) { return site.kind != SiteKind::kCatch; });
}

FilePlan plan_file(const ProbeMap& map, const MappedFile& file, const PlanSettings& settings) {
    FilePlan plan = plan_header(file);
    if (ranges_of_file(map, file.base_name).empty()) return plan;
    const std::unique_ptr<ElfFile> elf = ElfFile::open(file.open_path, plan.problem);
    if (!elf) return plan;
    plan.build_id = elf->build_id();
    const bool has_own_debug_info = has_debug_info(file.open_path);
    if (!elf->has_symbol_table() || !has_own_debug_info) {
        DebugFileSearch search = settings.debug_files;
        if (search.root.empty()) search.root = root_of(file.open_path);
        const std::string debug_file = find_debug_file(file.open_path, file.path, plan.build_id, search);
        const bool has_symbols = elf->has_symbol_table() || debug_file.empty() || elf->add_symbols_of(debug_file);
        if (!has_symbols) plan.warnings.push_back(debug_file + ": it has no symbol table that can be read");
        if (!debug_file.empty()) plan.debug_file = debug_file;
    }
    if (elf->is_cut_off())
        plan.warnings.push_back(
            "it has been cut off: its section headers lie behind its end, and with them its symbols");
    plan.debug_info_path = has_own_debug_info || plan.debug_file.empty() ? file.open_path : plan.debug_file;
    plan_ranges(map, file.base_name, settings, *elf, plan);
    return plan;
}

FilePlan plan_exception_landing(const MappedFile& file, const KernelNops& kernel) {
    FilePlan plan = plan_header(file);
    const std::unique_ptr<ElfFile> elf = ElfFile::open(file.open_path, plan.problem);
    if (!elf) return plan;
    plan.build_id = elf->build_id();
    plan.stripped = !elf->has_symbol_table();
    const std::string wanted = "__cxa_begin_catch";
    const auto& functions = elf->functions();
    const auto symbol = std::find_if(functions.begin(), functions.end(),
                                     [&](const FunctionSymbol& function) { return function.name == wanted; });
    if (symbol == functions.end()) return plan;
    const std::vector<FunctionGroup> groups = group_functions(*elf);
    FunctionReader reader(*elf, kernel);
    const FunctionCode& code = reader.read(*group_at(groups, symbol->address)).code;
    if (!code.problem.empty()) {
        plan.problem = wanted + ": " + code.problem;
        return plan;
    }
    PlannedFunction function;
    function.symbol = function.name = wanted;
    plan.functions.push_back(std::move(function));
    Site site;
    site.kind = SiteKind::kCatch;
    site.file_offset = elf->file_offset(code.entry.instruction.address).value();
    site.stack_adjust = code.entry.stack_growth;
    site.instruction = code.entry.instruction;
    plan.sites.push_back(std::move(site));
    return plan;
}

}  // namespace hostrange
