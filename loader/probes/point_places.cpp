// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/point_places.h"

#include <fmt/format.h>

#include <algorithm>

namespace hostrange {
namespace {

bool is_global(const ElfFile& file, const std::string& symbol) {
    const auto& functions = file.functions();
    return std::any_of(functions.begin(), functions.end(),
                       [&](const FunctionSymbol& function) { return function.global && function.name == symbol; });
}

bool is_imported_end(const ElfFile& file, const SymbolMatcher& anywhere, std::uint32_t range) {
    for (const std::string& name : file.imported_functions())
        for (const SymbolMatch& match : anywhere.match(name, demangle(name)))
            if (match.range == range && (match.role == Role::kEndEntry || match.role == Role::kEndReturn)) return true;
    return false;
}

}  // namespace

void PointPlaces::add() {
    for (const std::uint32_t range : ranges) {
        for (const Point& point : map.ranges[range].begin) add_place(range, point, SiteKind::kBegin);
        for (const Point& point : map.ranges[range].end) add_place(range, point, SiteKind::kEnd);
    }
}

void PointPlaces::add_place(std::uint32_t range, const Point& point, SiteKind kind) {
    if (point.kind != Point::Kind::kPlace) return;
    const std::string name = fmt::format("{:#x}", point.place.offset);
    const std::optional<std::uint64_t> address = file.address_of_offset(point.place.offset);
    if (!address) {
        plan.unavailable.push_back({range, name, "there is no code at this offset of the file", {}});
        return;
    }
    const FunctionGroup group = group_around(*address);
    const WholeFunction& whole = reader.read(group);
    const FlowInstruction* found = whole.flow.problem().empty() ? whole.flow.at(*address) : nullptr;
    if (found == nullptr) {
        plan.unavailable.push_back({range, name, "no instruction is known to begin there", {}});
        return;
    }
    const DecodedInstruction decoded = whole.flow.decoded(*found);
    const Instruction instruction = decoded.describe(false, kernel);
    std::string refusal = decoded.refusal();
    if (decoded.is_exact_nop5()) refusal = "is a five-byte nop, where the kernel's patch may overwrite the stack";
    if (!point.place.instruction.empty() && instruction.text != point.place.instruction)
        refusal = fmt::format("is not '{}'", point.place.instruction);
    if (!refusal.empty()) {
        plan.unavailable.push_back(
            {range, name, fmt::format("the instruction there ('{}') {}", instruction.text, refusal), {}});
        return;
    }
    const std::optional<CallFrame> frame = reader.frames().at(*address);
    const std::optional<FrameAddress> stack = frame ? reader.frames().frame_address(*frame, *address) : std::nullopt;
    Site site;
    site.kind = kind;
    site.range = range;
    site.function = static_cast<std::uint32_t>(plan.functions.size());
    site.file_offset = point.place.offset;
    site.from_frame_pointer = stack && stack->from_frame_pointer;
    site.stack_adjust = stack && stack->offset < INT16_MAX ? stack->offset - kReturnAddressBytes : 0;
    site.instruction = instruction;
    plan.sites.push_back(site);
    PlannedFunction function;
    function.kind = PlannedFunction::Kind::kPoint;
    function.symbol = function.name = name;
    function.file_offset = point.place.offset;
    if (!group.symbols.empty()) function.container = demangle(group.symbols.front()->name);
    function.range = range;
    function.labels = map.ranges[range].labels;
    plan.functions.push_back(std::move(function));
}

FunctionGroup PointPlaces::group_around(std::uint64_t address) const {
    const std::optional<CallFrame> frame = reader.frames().at(address);
    FunctionGroup group;
    group.address = frame ? frame->begin : address;
    group.next = file.segment_end(address).value();
    if (const FunctionGroup* known = group_at(groups, group.address)) return *known;
    if (frame) return group;
    for (const FunctionGroup& known : groups)
        if (address >= known.address && address - known.address < known.size) return known;
    return group;
}

std::map<std::uint32_t, bool> PointPlaces::drop_lone(const SymbolMatcher& anywhere) {
    std::map<std::uint32_t, bool> dropped;
    for (const std::uint32_t range : ranges) {
        if (!map.ranges[range].is_point_to_point()) continue;
        bool begins = false, ends = false, is_exported = false;
        for (const Site& site : plan.sites) {
            if (site.range != range) continue;
            begins |= site.kind == SiteKind::kBegin;
            ends |= site.kind == SiteKind::kEnd;
            is_exported |= site.kind == SiteKind::kEnd && is_global(file, plan.functions[site.function].symbol);
        }
        if (begins == ends || (begins && is_imported_end(file, anywhere, range)) || (ends && is_exported)) continue;
        std::erase_if(plan.sites, [&](const Site& site) { return site.range == range; });
        dropped.insert({range, begins});
    }
    return dropped;
}

}  // namespace hostrange
