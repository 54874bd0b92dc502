// SPDX-License-Identifier: Apache-2.0
// Which functions of other files an ELF file calls: through its PLT and its GOT, as the relocations tell.
#include <algorithm>
#include <cstring>

#include "loader/probes/elf_contents.h"

namespace hostrange {

void ElfFile::Contents::read_got_names() {
    got_names.emplace();
    GElf_Shdr symbols_header;
    Elf_Data* symbols = table(dynamic_symbols);
    if (symbols == nullptr || gelf_getshdr(dynamic_symbols, &symbols_header) == nullptr) return;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(elf.get(), section)) != nullptr) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_RELA) continue;
        if (header.sh_link != elf_ndxscn(dynamic_symbols)) continue;
        Elf_Data* relocations = table(section);
        if (relocations == nullptr) continue;
        const std::size_t count = relocations->d_size / sizeof(Elf64_Rela);
        for (std::size_t i = 0; i < count; ++i) {
            GElf_Rela relocation;
            if (gelf_getrela(relocations, static_cast<int>(i), &relocation) == nullptr) break;
            const auto type = GELF_R_TYPE(relocation.r_info);
            if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
            GElf_Sym symbol;
            if (gelf_getsym(symbols, static_cast<int>(GELF_R_SYM(relocation.r_info)), &symbol) == nullptr) continue;
            const std::string_view name = name_in(strings_from(symbols_header.sh_link, 0), symbol.st_name);
            if (name.empty() || names_bytes + name.size() > kMaxNamesBytes) continue;
            names_bytes += name.size();
            got_names->emplace(relocation.r_offset, std::string(without_version(name)));
        }
    }
}

std::string ElfFile::got_target(std::uint64_t address) const {
    if (!contents_->got_names) contents_->read_got_names();
    const auto found = contents_->got_names->find(address);
    return found == contents_->got_names->end() ? "" : found->second;
}

std::vector<std::string> ElfFile::imported_functions() const {
    if (!contents_->got_names) contents_->read_got_names();
    std::vector<std::string> names;
    for (const auto& [address, name] : *contents_->got_names) names.push_back(name);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::string ElfFile::plt_target(std::uint64_t address) const {
    constexpr std::uint64_t kSlotBytes = 16;
    const std::optional<std::uint64_t> end = segment_end(address);
    if (!end) return "";
    const std::vector<std::uint8_t> slot = code(address, std::min(kSlotBytes, *end - address));
    // endbr64, if there; then jmp *disp32(%rip), perhaps with a bnd prefix.
    std::size_t at = 0;
    constexpr std::uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    if (slot.size() >= sizeof kEndbr64 && std::equal(std::begin(kEndbr64), std::end(kEndbr64), slot.begin()))
        at += sizeof kEndbr64;
    if (at < slot.size() && slot[at] == 0xf2) ++at;
    if (slot.size() < at + 6 || slot[at] != 0xff || slot[at + 1] != 0x25) return "";
    std::int32_t displacement;
    std::memcpy(&displacement, slot.data() + at + 2, sizeof displacement);
    return got_target(address + at + 6 + static_cast<std::int64_t>(displacement));
}

}  // namespace hostrange
