// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loader/probes/control_flow.h"
#include "loader/probes/elf_file.h"
#include "loader/probes/frame_table.h"
#include "loader/probes/function_code.h"

namespace hostrange {

// All symbols at one address: one function with several names.
struct FunctionGroup {
    std::uint64_t address = 0;
    std::uint64_t size = 0;                      // the largest that a symbol gives; 0 if none gives any
    std::uint64_t next = 0;                      // address of the next function in the file, or end of the segment
    std::vector<const FunctionSymbol*> symbols;  // by name
};
std::vector<FunctionGroup> group_functions(const ElfFile& file);

// The function that begins at this address; nullptr if none does. `groups` as group_functions() gives them.
const FunctionGroup* group_at(const std::vector<FunctionGroup>& groups, std::uint64_t address);

// Code of a function together with what is known of its extent.
struct WholeFunction {
    std::vector<CodePart> parts;
    ControlFlow flow;
    FunctionCode code;
    std::vector<LandingPad> landing_pads;
    bool size_is_guess = false;
    bool cold_part_is_ambiguous = false;  // several .cold symbols bear its name; only those it jumps to are its own
};

// Addresses of the inlined code in a function.
struct InlinedMarks {
    std::set<std::uint64_t> boundaries;  // where some of it begins or ends
    std::set<std::uint64_t> beginnings;  // where calls begin
};

// Finds the extent of functions and the parts that the compiler has put elsewhere, and decodes functions with all their
// parts. What the unwinder knows (FrameTable) goes before what symbols say.
class FunctionReader {
public:
    FunctionReader(const ElfFile& file, const KernelNops& kernel);

    // Of the function at this address. To be filled before that is read.
    InlinedMarks& inlined_marks(std::uint64_t function) { return inlined_marks_[function]; }

    // Decoded once; valid as long as the reader.
    const WholeFunction& read(const FunctionGroup& group);

    // A function that no symbol names, as in stripped files, but that the unwinder's tables know to begin at this
    // address: another function, or a part that the compiler has moved away; jumped to, both are the same. nullptr:
    // none. Valid as long as the reader.
    const FunctionGroup* unnamed_function_at(std::uint64_t address);

    const FrameTable& frames() const { return frames_; }

private:
    WholeFunction decode_whole(const FunctionGroup& group);
    std::optional<CodePart> part_at(const FunctionGroup& group, std::uint64_t address) const;
    bool is_function(std::uint64_t address) const;
    const FunctionSymbol* part_symbol_at(const FunctionGroup& group, std::uint64_t address) const;
    bool add_parts(const FunctionGroup& group, WholeFunction& function) const;
    bool add_reached_parts(const FunctionGroup& group, WholeFunction& function) const;
    void add_named_parts(const FunctionGroup& group, WholeFunction& function) const;
    bool add_landing_pads(WholeFunction& function) const;
    void decode(const FunctionGroup& group, WholeFunction& function);

    const ElfFile& file_;
    KernelNops kernel_;
    FrameTable frames_;
    std::map<std::uint64_t, std::unique_ptr<WholeFunction>> functions_;  // by address
    std::map<std::uint64_t, FunctionGroup> unnamed_;                     // by address
    std::map<std::uint64_t, InlinedMarks> inlined_marks_;                // by address of the function
    std::unordered_map<std::string_view, std::vector<const FunctionSymbol*>> cold_by_base_;
    std::unordered_map<std::string_view, std::vector<std::uint64_t>> addresses_by_base_;  // of functions with a .cold
    std::uint64_t bytes_left_;
};

}  // namespace hostrange
