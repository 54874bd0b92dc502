// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elfutils/libdw.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "loader/probes/debug_info.h"

namespace hostrange {

// Reads line tables of DWARF, as far as they say where a function's code begins.
class LineTables {
public:
    struct Instance {
        InlinedInstance* instance;
        std::vector<AddressRange> inner;           // of its ranges, what is left out of account
        std::vector<std::uint64_t> other_entries;  // where marks are of other calls
    };

    // Fills in what line tables say of the instances of one function, declared at `line` of `file`: where its first
    // statement begins, and what code is repeated. The first statement is what has the lowest line and column, none
    // above the declaration. `unit`: the DIE of the unit with the line table. Rows that begin no statement (is_stmt,
    // DWARF 5, 6.2.2) are passed over in instances that mark statements.
    void find_beginnings(Dwarf_Die& unit, const char* file, int line, const std::vector<Instance>& instances);

    // The name of a file of the unit's line table; nullptr if it has none of that number, or cannot be read.
    const char* file_name(Dwarf_Die& unit, std::uint64_t number);

private:
    struct Table {
        Dwarf_Lines* lines = nullptr;
        std::size_t count = 0;
    };
    bool can_read(Dwarf_Die& unit);  // at bounded cost, and without reading what is not there
    const Table& table_of(Dwarf_Die& unit);

    // By the place of the unit's DIE in memory.
    std::unordered_map<const void*, bool> readable_;
    std::unordered_map<const void*, Table> tables_;
    std::uint64_t bytes_read_ = 0;
};

}  // namespace hostrange
