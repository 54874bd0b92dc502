// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/function_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "loader/probes/symbol_matching.h"

namespace hostrange {

namespace {

// A function without a size is searched for its end this far.
constexpr std::uint64_t kMaxGuessedBytes = 64 << 10;

constexpr std::size_t kMaxParts = 256;

// What a file can make this program decode: a hostile one can have many large symbols that all match.
constexpr std::uint64_t kMaxDecodedBytes = 64 << 20;

bool covers(const CodePart& part, std::uint64_t address) {
    return address >= part.address && address - part.address < part.size;
}

bool add_part(WholeFunction& function, const CodePart& added) {
    if (added.size == 0 || function.parts.size() >= kMaxParts) return false;
    for (const CodePart& part : function.parts)
        if (covers(part, added.address) || covers(added, part.address)) return false;
    function.parts.push_back(added);
    return true;
}

}  // namespace

std::vector<FunctionGroup> group_functions(const ElfFile& file) {
    std::vector<FunctionGroup> groups;
    for (const FunctionSymbol& symbol : file.functions()) {
        if (groups.empty() || groups.back().address != symbol.address) groups.push_back({symbol.address, 0, 0, {}});
        groups.back().size = std::max(groups.back().size, symbol.size);
        groups.back().symbols.push_back(&symbol);
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
        groups[i].next = file.segment_end(groups[i].address).value_or(groups[i].address);
        if (i + 1 < groups.size()) groups[i].next = std::min(groups[i].next, groups[i + 1].address);
    }
    return groups;
}

const FunctionGroup* group_at(const std::vector<FunctionGroup>& groups, std::uint64_t address) {
    const auto found =
        std::lower_bound(groups.begin(), groups.end(), address,
                         [](const FunctionGroup& group, std::uint64_t wanted) { return group.address < wanted; });
    return found != groups.end() && found->address == address ? &*found : nullptr;
}

FunctionReader::FunctionReader(const ElfFile& file, const KernelNops& kernel)
    : file_(file), kernel_(kernel), frames_(file), bytes_left_(kMaxDecodedBytes) {
    for (const FunctionSymbol& symbol : file.functions()) {
        const CloneSuffix suffix = clone_suffix(symbol.name);
        if (suffix.cold && !suffix.numbered_cold) cold_by_base_[suffix.base].push_back(&symbol);
    }
    if (cold_by_base_.empty()) return;
    for (const FunctionSymbol& symbol : file.functions())
        if (cold_by_base_.contains(symbol.name)) addresses_by_base_[symbol.name].push_back(symbol.address);
}

// Whether some symbol at this address names a function and no part of one.
bool FunctionReader::is_function(std::uint64_t address) const {
    const std::vector<FunctionSymbol>& functions = file_.functions();
    const auto first =
        std::lower_bound(functions.begin(), functions.end(), address,
                         [](const FunctionSymbol& symbol, std::uint64_t wanted) { return symbol.address < wanted; });
    for (auto symbol = first; symbol != functions.end() && symbol->address == address; ++symbol) {
        const CloneSuffix suffix = clone_suffix(symbol->name);
        if (!suffix.cold && !suffix.part) return true;
    }
    return false;
}

// The part of the function that a jump to this address enters; nullptr if it enters another function.
const FunctionSymbol* FunctionReader::part_symbol_at(const FunctionGroup& group, std::uint64_t address) const {
    const std::vector<FunctionSymbol>& functions = file_.functions();
    auto after =
        std::upper_bound(functions.begin(), functions.end(), address,
                         [](std::uint64_t wanted, const FunctionSymbol& symbol) { return wanted < symbol.address; });
    while (after != functions.begin()) {
        const FunctionSymbol& symbol = *--after;
        if (address - symbol.address >= symbol.size) return nullptr;
        const CloneSuffix suffix = clone_suffix(symbol.name);
        // A .cold part is its own whatever its name: folding and link-time optimisation rename. But one that has been
        // folded with a function is that function, for whoever calls it.
        if (suffix.cold) return is_function(symbol.address) ? nullptr : &symbol;
        // A .part is a function that its base may also call; jumped to, it returns in the base's stead.
        if (suffix.part && address == symbol.address &&
            std::any_of(group.symbols.begin(), group.symbols.end(),
                        [&](const FunctionSymbol* own) { return clone_suffix(own->name).root == suffix.root; }))
            return &symbol;
        if (after == functions.begin() || std::prev(after)->address != symbol.address) return nullptr;
    }
    return nullptr;
}

std::optional<CodePart> FunctionReader::part_at(const FunctionGroup& group, std::uint64_t address) const {
    if (const FunctionSymbol* symbol = part_symbol_at(group, address)) return CodePart{symbol->address, symbol->size};
    // Code that is entered with the stack already moved is no function.
    const std::optional<CallFrame> frame = frames_.at(address);
    if (!frame) return std::nullopt;
    const std::optional<FrameAddress> at_begin = frames_.frame_address(*frame, frame->begin);
    if (!at_begin || (!at_begin->from_frame_pointer && at_begin->offset == kReturnAddressBytes)) return std::nullopt;
    // The table of PLT slots has one frame, whose first slot pushes; the others are described by an expression.
    if (!frames_.frame_address(*frame, address)) return std::nullopt;
    return CodePart{frame->begin, frame->end - frame->begin};
}

bool FunctionReader::add_reached_parts(const FunctionGroup& group, WholeFunction& function) const {
    bool added = false;
    for (const std::uint64_t target : function.code.outside_targets)
        if (const std::optional<CodePart> part = part_at(group, target)) added |= add_part(function, *part);
    return added;
}

// Code in which exceptions land is entered by no jump.
bool FunctionReader::add_landing_pads(WholeFunction& function) const {
    function.landing_pads.clear();
    bool added = false;
    for (std::size_t i = 0; i < function.parts.size(); ++i) {
        const std::optional<CallFrame> frame = frames_.at(function.parts[i].address);
        if (!frame) continue;
        for (const LandingPad& pad : frames_.landing_pads(*frame)) {
            function.landing_pads.push_back(pad);
            const std::optional<CallFrame> landing = frames_.at(pad.address);
            if (landing) added |= add_part(function, {landing->begin, landing->end - landing->begin});
        }
    }
    return added;
}

// Without frames, the name of a part that is entered by unwinding alone has to do.
void FunctionReader::add_named_parts(const FunctionGroup& group, WholeFunction& function) const {
    for (const FunctionSymbol* symbol : group.symbols) {
        const auto colds = cold_by_base_.find(symbol->name);
        if (colds == cold_by_base_.end()) continue;
        // Static functions of several sources may share a name; so may their cold parts.
        const FunctionSymbol& cold = *colds->second.front();
        if (colds->second.size() == 1 && addresses_by_base_.at(symbol->name).size() == 1)
            add_part(function, {cold.address, cold.size});
        else
            function.cold_part_is_ambiguous = true;
    }
}

bool FunctionReader::add_parts(const FunctionGroup& group, WholeFunction& function) const {
    const bool reached = add_reached_parts(group, function);
    const bool landed = add_landing_pads(function);
    return reached || landed;
}

void FunctionReader::decode(const FunctionGroup& group, WholeFunction& function) {
    std::uint64_t bytes = 0;
    for (const CodePart& part : function.parts) bytes += part.size;
    if (bytes > bytes_left_) {
        function.code = {};
        function.code.problem =
            fmt::format("more than {} MiB of code in this file match the probe map", kMaxDecodedBytes >> 20);
        return;
    }
    bytes_left_ -= bytes;
    std::vector<std::uint64_t> pads;
    for (const LandingPad& pad : function.landing_pads) pads.push_back(pad.address);
    function.flow = ControlFlow::decode(file_, function.parts, pads);
    function.code = read_function_code(function.flow, kernel_, inlined_marks_[group.address].boundaries);
}

WholeFunction FunctionReader::decode_whole(const FunctionGroup& group) {
    WholeFunction function;
    const std::optional<CallFrame> frame = frames_.at(group.address);
    if (frame && frame->begin == group.address) {
        function.parts.push_back({group.address, frame->end - frame->begin});
    } else {
        function.size_is_guess = group.size == 0;
        const std::uint64_t limit = std::min(group.next - group.address, kMaxGuessedBytes);
        function.parts.push_back({group.address, function.size_is_guess ? limit : group.size, function.size_is_guess});
        add_named_parts(group, function);
    }
    add_landing_pads(function);
    decode(group, function);
    // Parts reach further parts, but each only once.
    while (function.code.problem.empty() && add_parts(group, function)) decode(group, function);
    return function;
}

const FunctionGroup* FunctionReader::unnamed_function_at(std::uint64_t address) {
    const std::optional<CallFrame> frame = frames_.at(address);
    if (!frame || frame->begin != address) return nullptr;
    return &unnamed_.try_emplace(address, FunctionGroup{address, frame->end - frame->begin, frame->end, {}})
                .first->second;
}

const WholeFunction& FunctionReader::read(const FunctionGroup& group) {
    std::unique_ptr<WholeFunction>& known = functions_[group.address];
    if (!known) known = std::make_unique<WholeFunction>(decode_whole(group));
    return *known;
}

}  // namespace hostrange
