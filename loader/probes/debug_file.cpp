// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/debug_file.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <gelf.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>

#include "loader/probes/debuginfod.h"
#include "loader/probes/elf_file.h"

namespace hostrange {

namespace {

constexpr const char* kSystemDirectory = "/usr/lib/debug";

struct EndElf {
    void operator()(Elf* elf) const { elf_end(elf); }
};

class OpenElf {
public:
    explicit OpenElf(const std::string& path) : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        elf_version(EV_CURRENT);
        if (file_ >= 0 && has_few_sections(file_)) elf_.reset(elf_begin(file_, ELF_C_READ, nullptr));
        if (elf_ && elf_kind(elf_.get()) != ELF_K_ELF) elf_.reset();
    }
    ~OpenElf() {
        elf_.reset();
        if (file_ >= 0) close(file_);
    }
    OpenElf(const OpenElf&) = delete;
    OpenElf& operator=(const OpenElf&) = delete;
    Elf* elf() const { return elf_.get(); }

private:
    int file_;
    std::unique_ptr<Elf, EndElf> elf_;
};

bool is_readable(const std::string& path) {
    return access(path.c_str(), R_OK) == 0;
}

// The checksum of .gnu_debuglink: CRC-32 as in IEEE 802.3.
std::uint32_t checksum(const std::string& path) {
    static const std::array<std::uint32_t, 256> table = [] {
        std::array<std::uint32_t, 256> result{};
        for (std::uint32_t i = 0; i < result.size(); ++i) {
            result[i] = i;
            for (int bit = 0; bit < 8; ++bit) result[i] = result[i] >> 1 ^ ((result[i] & 1) != 0 ? 0xedb88320u : 0);
        }
        return result;
    }();
    std::ifstream file(path, std::ios::binary);
    std::vector<char> buffer(1 << 20);
    std::uint32_t sum = ~0u;
    while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0)
        for (std::streamsize i = 0; i < file.gcount(); ++i)
            sum = table[(sum ^ static_cast<std::uint8_t>(buffer[i])) & 0xff] ^ sum >> 8;
    return ~sum;
}

struct DebugLink {
    std::string name;
    std::uint32_t checksum;
};

std::optional<DebugLink> debug_link(const std::string& path) {
    const OpenElf file(path);
    if (file.elf() == nullptr) return std::nullopt;
    GElf_Word expected = 0;
    const char* name = dwelf_elf_gnu_debuglink(file.elf(), &expected);
    // A name with a path in it would lead anywhere.
    if (name == nullptr || *name == 0 || std::string_view(name).find('/') != std::string_view::npos)
        return std::nullopt;
    return DebugLink{name, expected};
}

// Two files with different build-ids do not belong together, whatever a checksum says.
bool agrees(const std::string& path, const std::string& build_id) {
    const OpenElf file(path);
    if (file.elf() == nullptr) return false;
    const std::string own = read_build_id(path);
    return own.empty() || build_id.empty() || own == build_id;
}

std::string find_by_link(const std::string& open_path, const std::string& path, const std::string& build_id,
                         const std::vector<std::string>& directories, const std::string& root) {
    const std::optional<DebugLink> link = debug_link(open_path);
    if (!link) return "";
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    std::vector<std::string> candidates = {root + folder + link->name, root + folder + ".debug/" + link->name};
    for (const std::string& directory : directories) {
        candidates.push_back(directory + "/" + link->name);
        candidates.push_back(directory + "/" + folder + link->name);
    }
    for (const std::string& candidate : candidates)
        if (is_readable(candidate) && agrees(candidate, build_id) && checksum(candidate) == link->checksum)
            return candidate;
    return "";
}

}  // namespace

std::string read_build_id(const std::string& path) {
    const OpenElf file(path);
    const void* bytes = nullptr;
    const ssize_t size = file.elf() != nullptr ? dwelf_elf_gnu_build_id(file.elf(), &bytes) : 0;
    std::string text;
    constexpr char kDigits[] = "0123456789abcdef";
    for (ssize_t i = 0; i < size; ++i) {
        const auto byte = static_cast<const std::uint8_t*>(bytes)[i];
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

std::string find_debug_file(const std::string& open_path, const std::string& path, const std::string& build_id,
                            const DebugFileSearch& search) {
    std::vector<std::string> directories = search.directories;
    if (!search.root.empty()) directories.push_back(search.root + kSystemDirectory);
    directories.push_back(kSystemDirectory);

    if (build_id.size() > 2) {
        for (const std::string& directory : directories) {
            const std::string candidate =
                directory + "/.build-id/" + build_id.substr(0, 2) + "/" + build_id.substr(2) + ".debug";
            if (is_readable(candidate) && agrees(candidate, build_id)) return candidate;
        }
    }
    const std::string linked = find_by_link(open_path, path, build_id, directories, search.root);
    if (!linked.empty()) return linked;
    const std::string fetched = fetch_debug_file(build_id);
    return !fetched.empty() && agrees(fetched, build_id) ? fetched : "";
}

bool has_debug_info(const std::string& path) {
    const OpenElf file(path);
    std::size_t names = 0;
    if (file.elf() == nullptr || elf_getshdrstrndx(file.elf(), &names) != 0) return false;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(file.elf(), section)) != nullptr) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
        const char* name = elf_strptr(file.elf(), names, header.sh_name);
        if (name != nullptr && (std::string_view(name) == ".debug_info" || std::string_view(name) == ".zdebug_info"))
            return true;
    }
    return false;
}

}  // namespace hostrange
