// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/dwarf_names.h"

#include <dwarf.h>
#include <gelf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace hostrange {

namespace {

constexpr std::uint64_t kMaxScopeBytes = 256u << 20;  // of units searched for what encloses a DIE
constexpr unsigned kMaxTypeDepth = 16;                // pointers to pointers to …
constexpr std::size_t kMaxParameters = 64;
constexpr std::size_t kMaxComposedBytes = 4096;

}  // namespace

const char* DwarfStrings::text(Dwarf_Attribute* attribute) {
    const char* start = attribute != nullptr ? dwarf_formstring(attribute) : nullptr;
    if (start == nullptr) return nullptr;
    Dwarf* dwarf = dwarf_cu_getdwarf(attribute->cu);
    for (Dwarf* source : {dwarf, dwarf_getalt(dwarf)})
        if (source != nullptr && ends_inside(source, start)) return start;
    return nullptr;
}

const char* DwarfStrings::text(Dwarf_Die* die, unsigned code) {
    Dwarf_Attribute attribute;
    return text(dwarf_attr_integrate(die, code, &attribute));
}

bool DwarfStrings::ends_inside(Dwarf* dwarf, const char* start) {
    const auto [known, is_new] = sections_.try_emplace(dwarf);
    if (is_new) read_sections(dwarf_getelf(dwarf), known->second);
    return std::any_of(known->second.begin(), known->second.end(), [&](std::string_view section) {
        const std::less_equal<const char*> not_after;
        const char* end = section.data() + section.size();
        return not_after(section.data(), start) && not_after(start + 1, end) &&
               std::memchr(start, 0, static_cast<std::size_t>(end - start)) != nullptr;
    });
}

// As libdw has them: compressed ones are unpacked in place.
void DwarfStrings::read_sections(Elf* elf, std::vector<std::string_view>& result) {
    std::size_t names = 0;
    if (elf == nullptr || elf_getshdrstrndx(elf, &names) != 0) return;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(elf, section)) != nullptr) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
        const char* name = elf_strptr(elf, names, header.sh_name);
        if (name == nullptr || std::string_view(name).find("debug") == std::string_view::npos) continue;
        const Elf_Data* data = elf_rawdata(section, nullptr);
        if (data != nullptr && data->d_buf != nullptr)
            result.emplace_back(static_cast<const char*>(data->d_buf), data->d_size);
    }
}

std::string NameComposer::function(Dwarf_Die& die) {
    Dwarf_Die declaration = declaration_of(die);
    std::string name = qualified(declaration);
    Dwarf_Die child;
    std::string parameters;
    std::size_t count = 0;
    for (int status = dwarf_child(&declaration, &child); status == 0 && count < kMaxParameters;
         status = dwarf_siblingof(&child, &child)) {
        if (dwarf_tag(&child) != DW_TAG_formal_parameter) continue;
        Dwarf_Attribute attribute;
        if (dwarf_attr_integrate(&child, DW_AT_artificial, &attribute) != nullptr) continue;
        parameters += (count++ == 0 ? "" : ", ") + type_of(child, 0);
    }
    return name.empty() ? name : (name + "(" + parameters + ")").substr(0, kMaxComposedBytes);
}

Dwarf_Die NameComposer::declaration_of(Dwarf_Die& die) {
    Dwarf_Attribute attribute;
    Dwarf_Die result = die, next;
    for (const unsigned code : {DW_AT_abstract_origin, DW_AT_specification})
        if (dwarf_attr(&result, code, &attribute) != nullptr && dwarf_formref_die(&attribute, &next) != nullptr)
            result = next;
    return result;
}

// With the namespaces and classes around it. Finding those takes a search of the whole unit.
std::string NameComposer::qualified(Dwarf_Die& die) {
    const char* own = strings_.text(&die, DW_AT_name);
    if (own == nullptr) return "";
    std::string name = own;
    Dwarf_Die unit;
    if (dwarf_diecu(&die, &unit, nullptr, nullptr) == nullptr) return name;
    spent_bytes_ += unit_size(unit);
    if (spent_bytes_ > kMaxScopeBytes) return name;
    Dwarf_Die* scopes = nullptr;
    const int count = dwarf_getscopes_die(&die, &scopes);
    for (int i = 1; i < count && name.size() < kMaxComposedBytes; ++i) {
        const char* outer = strings_.text(&scopes[i], DW_AT_name);
        switch (dwarf_tag(&scopes[i])) {
            case DW_TAG_namespace:
                name = std::string(outer != nullptr ? outer : "(anonymous namespace)") + "::" + name;
                break;
            case DW_TAG_structure_type:
            case DW_TAG_class_type:
            case DW_TAG_union_type:
                name = std::string(outer != nullptr ? outer : "{unnamed type}") + "::" + name;
                break;
            default:
                break;
        }
    }
    std::free(scopes);
    return name;
}

// Of the unit with this DIE, roughly: to the next one.
std::uint64_t NameComposer::unit_size(Dwarf_Die& unit) {
    const auto [known, is_new] = unit_sizes_.try_emplace(unit.addr, 0);
    if (is_new) {
        Dwarf_Die end;
        std::uint64_t last = dwarf_dieoffset(&unit);
        const std::uint64_t first = last;
        for (int status = dwarf_child(&unit, &end); status == 0; status = dwarf_siblingof(&end, &end))
            last = dwarf_dieoffset(&end);
        known->second = last - first + 1;
    }
    return known->second;
}

std::string NameComposer::type_of(Dwarf_Die& die, unsigned depth) {
    Dwarf_Attribute attribute;
    Dwarf_Die type;
    if (depth > kMaxTypeDepth || dwarf_attr_integrate(&die, DW_AT_type, &attribute) == nullptr ||
        dwarf_formref_die(&attribute, &type) == nullptr)
        return "void";
    switch (dwarf_tag(&type)) {
        case DW_TAG_pointer_type:
            return type_of(type, depth + 1) + "*";
        case DW_TAG_reference_type:
            return type_of(type, depth + 1) + "&";
        case DW_TAG_rvalue_reference_type:
            return type_of(type, depth + 1) + "&&";
        case DW_TAG_const_type:
            return type_of(type, depth + 1) + " const";
        case DW_TAG_volatile_type:
            return type_of(type, depth + 1) + " volatile";
        case DW_TAG_typedef:
            return type_of(type, depth + 1);
        default:
            return qualified(type);
    }
}

}  // namespace hostrange
