// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loader/probes/elf_file.h"
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

// Code of a function together with what is known of its extent.
struct WholeFunction {
    std::vector<CodePart> parts;
    FunctionCode code;
    bool size_is_guess = false;
    bool cold_part_is_ambiguous = false;  // several .cold symbols bear its name; only those it jumps to are its own
};

// Finds the parts of functions that the compiler has put elsewhere, and decodes functions with all their parts.
class FunctionReader {
public:
    explicit FunctionReader(const ElfFile& file);

    WholeFunction read(const FunctionGroup& group);

private:
    const FunctionSymbol* part_at(const FunctionGroup& group, std::uint64_t address) const;
    bool add_reached_parts(const FunctionGroup& group, WholeFunction& function) const;
    void add_named_parts(const FunctionGroup& group, WholeFunction& function) const;
    void decode(WholeFunction& function);

    const ElfFile& file_;
    std::unordered_map<std::string_view, std::vector<const FunctionSymbol*>> cold_by_base_;
    std::unordered_map<std::string_view, std::vector<std::uint64_t>> addresses_by_base_;  // of functions with a .cold
    std::uint64_t bytes_left_;
};

}  // namespace hostrange
