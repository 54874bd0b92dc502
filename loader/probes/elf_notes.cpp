// SPDX-License-Identifier: Apache-2.0
// What the notes of an ELF file say: its build-id and its USDT probes.
#include <algorithm>
#include <cstring>

#include "loader/probes/elf_contents.h"

namespace hostrange {
namespace {

// What a file may make this program allocate for them; the largest seen in practice stay well below.
constexpr std::uint64_t kMaxNoteBytes = 64 << 10;

}  // namespace

void ElfFile::Contents::read_build_id(const GElf_Phdr& notes) {
    const std::vector<std::uint8_t> data =
        bytes(notes.p_offset, std::min<std::uint64_t>(notes.p_filesz, kMaxNoteBytes));
    const std::uint64_t alignment = notes.p_align == 8 ? 8 : 4;
    const auto padded = [&](std::uint64_t size) { return (size + alignment - 1) / alignment * alignment; };
    std::uint64_t at = 0;
    while (build_id.empty() && at + sizeof(Elf64_Nhdr) <= data.size()) {
        Elf64_Nhdr note;
        std::memcpy(&note, data.data() + at, sizeof note);
        const std::uint64_t name = at + sizeof note;
        const std::uint64_t description = at + padded(sizeof note + std::uint64_t{note.n_namesz});
        const std::uint64_t end = description + note.n_descsz;
        if (description > data.size() || end > data.size()) return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(data.data() + name, "GNU", 4) == 0) {
            constexpr char kDigits[] = "0123456789abcdef";
            for (std::uint64_t i = description; i < end; ++i) {
                build_id += kDigits[data[i] >> 4];
                build_id += kDigits[data[i] & 15];
            }
        }
        at = padded(end);
    }
}

std::vector<UsdtNote> ElfFile::usdt_notes() const {
    constexpr std::uint64_t kAddressesBytes = 3 * sizeof(std::uint64_t);
    constexpr std::uint32_t kUsdt = 3;  // the type of such notes
    constexpr std::string_view kOwner("stapsdt\0", 8);
    std::vector<UsdtNote> result;
    GElf_Shdr header, base_header;
    Elf_Scn* section = contents_->section_named(".note.stapsdt", header);
    if (section == nullptr || header.sh_type != SHT_NOTE) return result;
    Elf_Data* data = contents_->table(section);
    if (data == nullptr || data->d_buf == nullptr) return result;
    const std::string_view bytes(static_cast<const char*>(data->d_buf), data->d_size);
    const bool has_base = contents_->section_named(".stapsdt.base", base_header) != nullptr;
    GElf_Nhdr note;
    std::size_t name_at = 0, description_at = 0;
    for (std::size_t at = 0; (at = gelf_getnote(data, at, &note, &name_at, &description_at)) > 0;) {
        if (note.n_type != kUsdt || bytes.substr(name_at, note.n_namesz) != kOwner) continue;
        const std::string_view description = bytes.substr(description_at, note.n_descsz);
        if (description.size() < kAddressesBytes) continue;
        std::uint64_t addresses[3];
        std::memcpy(addresses, description.data(), sizeof addresses);
        std::string_view rest = description.substr(kAddressesBytes);
        std::string texts[3];
        for (std::string& text : texts) {
            text = rest.substr(0, rest.find('\0'));
            rest.remove_prefix(std::min(rest.size(), text.size() + 1));
        }
        UsdtNote one{.provider = texts[0], .name = texts[1], .arguments = texts[2]};
        // A prelinker moves the file, and leaves notes as they are; the base tells by how much.
        const std::uint64_t moved = has_base && addresses[1] ? base_header.sh_addr - addresses[1] : 0;
        one.address = addresses[0] + moved;
        one.semaphore = addresses[2] ? addresses[2] + moved : 0;
        result.push_back(std::move(one));
    }
    return result;
}

}  // namespace hostrange
