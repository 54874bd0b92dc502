// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gelf.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "loader/probes/elf_file.h"

// What ElfFile keeps of a file; for the files that implement it alone.
namespace hostrange {

// A file descriptor that is closed at the end of its scope.
class FileDescriptor {
public:
    explicit FileDescriptor(int number) : number_(number) {}
    ~FileDescriptor() {
        if (number_ >= 0) close(number_);
    }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    int number() const { return number_; }

private:
    int number_;
};

struct EndElf {
    void operator()(Elf* elf) const { elf_end(elf); }
};

// An executable PT_LOAD, as far as the file backs it.
struct Segment {
    std::uint64_t address;
    std::uint64_t offset;
    std::uint64_t size;
};

// A function symbol whose name still lies in libelf's copy of the string table: most names stand in two tables, and
// only one copy of each is worth making.
struct RawFunction {
    std::string_view name;
    std::uint64_t address;
    std::uint64_t size;
    bool global;
};

// How much of names is kept; files seen in practice stay well below.
inline constexpr std::uint64_t kMaxNamesBytes = 1u << 29;

// "memcpy@@GLIBC_2.14" without what stands behind the @.
inline std::string_view without_version(std::string_view name) {
    const std::size_t at = name.find('@');
    return at == 0 ? name : name.substr(0, at);
}

struct ElfFile::Contents {
    Contents(std::string path, int descriptor) : path(std::move(path)), file(descriptor) {}

    std::string path;
    FileDescriptor file;
    std::unique_ptr<Elf, EndElf> elf;
    std::uint64_t file_size = 0;
    std::vector<Segment> segments;       // executable
    std::vector<Segment> data_segments;  // the others
    std::optional<std::uint64_t> frame_table;
    std::string build_id;
    std::string interpreter;
    Elf_Scn* symbol_table = nullptr;
    Elf_Scn* dynamic_symbols = nullptr;
    std::vector<FunctionSymbol> functions;
    std::uint64_t names_bytes = 0;
    mutable std::uint64_t names_read_bytes = 0, tables_bytes = 0;
    mutable std::unordered_set<std::size_t> tables;                           // sections that libelf holds in memory
    std::optional<std::unordered_map<std::uint64_t, std::string>> got_names;  // read when first asked for

    std::string read();
    std::string read_segments();
    void find_sections();
    void read_build_id(const GElf_Phdr& notes);
    void add_functions(Elf_Scn* table, std::vector<RawFunction>& found) const;
    void read_functions(const Contents* debug);
    bool has_debug_symbols = false;
    void read_got_names();
    std::optional<std::uint64_t> object_address(Elf_Scn* table, const std::string& name) const;
    Elf_Data* table(Elf_Scn* section) const;
    Elf_Scn* section_named(std::string_view name, GElf_Shdr& header) const;
    std::string_view strings_from(std::size_t string_section, std::size_t offset) const;
    std::string_view name_in(std::string_view strings, std::size_t offset) const;
    std::vector<std::uint8_t> bytes(std::uint64_t offset, std::uint64_t size) const;
    const Segment* segment_of(std::uint64_t address) const;
    const Segment* any_segment_of(std::uint64_t address) const;
};

}  // namespace hostrange
