// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elfutils/libdw.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hostrange {

// libdw gives a string that stands among the DIEs (DW_FORM_string) as it is, also where the section ends before it
// does.
class DwarfStrings {
public:
    // nullptr if the attribute has no string, or one without an end.
    const char* text(Dwarf_Attribute* attribute);
    const char* text(Dwarf_Die* die, unsigned code);

private:
    bool ends_inside(Dwarf* dwarf, const char* start);
    static void read_sections(Elf* elf, std::vector<std::string_view>& result);

    std::unordered_map<Dwarf*, std::vector<std::string_view>> sections_;
};

// Composes the names of functions that have no linkage name: those that no other source can see. They look like
// demangled ones: "outer::(anonymous namespace)::f(int, char const*)".
class NameComposer {
public:
    explicit NameComposer(DwarfStrings& strings) : strings_(strings) {}

    std::string function(Dwarf_Die& die);

private:
    static Dwarf_Die declaration_of(Dwarf_Die& die);
    std::string qualified(Dwarf_Die& die);
    std::uint64_t unit_size(Dwarf_Die& unit);
    std::string type_of(Dwarf_Die& die, unsigned depth);

    DwarfStrings& strings_;
    std::uint64_t spent_bytes_ = 0;
    std::unordered_map<const void*, std::uint64_t> unit_sizes_;
};

}  // namespace hostrange
