// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/function_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "loader/probes/symbol_matching.h"

namespace hostrange {

namespace {

// A function without a size is searched for its end this far.
constexpr std::uint64_t kMaxGuessedBytes = 64 << 10;

// What a file can make this program decode: a hostile one can have many large symbols that all match.
constexpr std::uint64_t kMaxDecodedBytes = 64 << 20;

bool covers(const CodePart& part, std::uint64_t address) {
    return address >= part.address && address - part.address < part.size;
}

bool add_part(WholeFunction& function, const FunctionSymbol& symbol) {
    if (symbol.size == 0) return false;
    for (const CodePart& part : function.parts)
        if (covers(part, symbol.address) ||
            (symbol.address <= part.address && part.address - symbol.address < symbol.size))
            return false;
    function.parts.push_back({symbol.address, symbol.size});
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

FunctionReader::FunctionReader(const ElfFile& file) : file_(file), bytes_left_(kMaxDecodedBytes) {
    for (const FunctionSymbol& symbol : file.functions()) {
        const CloneSuffix suffix = clone_suffix(symbol.name);
        if (suffix.cold && !suffix.numbered_cold) cold_by_base_[suffix.base].push_back(&symbol);
    }
    if (cold_by_base_.empty()) return;
    for (const FunctionSymbol& symbol : file.functions())
        if (cold_by_base_.contains(symbol.name)) addresses_by_base_[symbol.name].push_back(symbol.address);
}

// The part of the function that a jump to this address enters; nullptr if it enters another function.
const FunctionSymbol* FunctionReader::part_at(const FunctionGroup& group, std::uint64_t address) const {
    const std::vector<FunctionSymbol>& functions = file_.functions();
    auto after =
        std::upper_bound(functions.begin(), functions.end(), address,
                         [](std::uint64_t wanted, const FunctionSymbol& symbol) { return wanted < symbol.address; });
    while (after != functions.begin()) {
        const FunctionSymbol& symbol = *--after;
        if (address - symbol.address >= symbol.size) return nullptr;
        const CloneSuffix suffix = clone_suffix(symbol.name);
        // A .cold part is its own whatever its name: folding and link-time optimisation rename.
        if (suffix.cold) return &symbol;
        // A .part is a function that its base may also call; jumped to, it returns in the base's stead.
        if (suffix.part && address == symbol.address &&
            std::any_of(group.symbols.begin(), group.symbols.end(),
                        [&](const FunctionSymbol* own) { return clone_suffix(own->name).root == suffix.root; }))
            return &symbol;
        if (after == functions.begin() || std::prev(after)->address != symbol.address) return nullptr;
    }
    return nullptr;
}

bool FunctionReader::add_reached_parts(const FunctionGroup& group, WholeFunction& function) const {
    bool added = false;
    for (const std::uint64_t target : function.code.outside_targets)
        if (const FunctionSymbol* part = part_at(group, target)) added |= add_part(function, *part);
    return added;
}

// A part that is entered by unwinding alone, a handler say, is reached by no jump: its name has to do.
void FunctionReader::add_named_parts(const FunctionGroup& group, WholeFunction& function) const {
    for (const FunctionSymbol* symbol : group.symbols) {
        const auto colds = cold_by_base_.find(symbol->name);
        if (colds == cold_by_base_.end()) continue;
        // Static functions of several sources may share a name; so may their cold parts.
        if (colds->second.size() == 1 && addresses_by_base_.at(symbol->name).size() == 1)
            add_part(function, *colds->second.front());
        else
            function.cold_part_is_ambiguous = true;
    }
}

void FunctionReader::decode(WholeFunction& function) {
    std::uint64_t bytes = 0;
    for (const CodePart& part : function.parts) bytes += part.size;
    if (bytes > bytes_left_) {
        function.code = {};
        function.code.problem =
            fmt::format("more than {} MiB of code in this file match the probe map", kMaxDecodedBytes >> 20);
        return;
    }
    bytes_left_ -= bytes;
    function.code = decode_function(file_, function.parts);
}

WholeFunction FunctionReader::read(const FunctionGroup& group) {
    WholeFunction function;
    function.size_is_guess = group.size == 0;
    const std::uint64_t limit = std::min(group.next - group.address, kMaxGuessedBytes);
    function.parts.push_back({group.address, function.size_is_guess ? limit : group.size, function.size_is_guess});
    add_named_parts(group, function);
    decode(function);
    // Parts reach further parts, but each only once.
    while (function.code.problem.empty() && add_reached_parts(group, function)) decode(function);
    return function;
}

}  // namespace hostrange
