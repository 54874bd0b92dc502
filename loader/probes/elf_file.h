// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hostrange {

// One name of one function. Several symbols may name one address.
struct FunctionSymbol {
    std::string name;       // mangled, version suffix (@, @@) taken off
    std::uint64_t address;  // virtual address in the file
    std::uint64_t size;     // bytes; 0 if the table does not say
    bool global;            // global or weak binding
};

// A USDT probe, as a note of type 3 and owner "stapsdt" in section .note.stapsdt tells of it (SystemTap's sys/sdt.h).
struct UsdtNote {
    std::string provider, name;
    std::string arguments;        // as written: "8@%rdi 8@%rsi"
    std::uint64_t address = 0;    // of the site, corrected for prelinking
    std::uint64_t semaphore = 0;  // address of its counter; 0 if it has none
};

// Reads an ELF file that may be hostile: every offset is checked, nothing is trusted, nothing is mapped (a file that is
// cut short meanwhile is an error, not a SIGBUS), and only what is asked for is read. x86-64 only (others: error).
// One thread at a time.
class ElfFile {
public:
    // Errors are values: nullptr, and `error` says what is wrong with the file in one line.
    static std::unique_ptr<ElfFile> open(const std::string& path, std::string& error);
    ~ElfFile();

    // Adds the functions that the .symtab of a separate debug file names. False if it cannot be read or has none.
    bool add_symbols_of(const std::string& debug_path);

    const std::string& path() const;
    std::string build_id() const;  // lower-case hex; empty if the file has none
    bool has_symbol_table()
        const;  // .symtab, its own or that of a debug file; if not, only exported functions are known

    // All defined functions (STT_FUNC, STT_GNU_IFUNC left out) of .symtab and .dynsym, duplicates of (name, address)
    // taken out, sorted by address.
    const std::vector<FunctionSymbol>& functions() const;

    // Bytes of [address, address + size) if a single executable PT_LOAD covers them in the file; else empty.
    std::vector<std::uint8_t> code(std::uint64_t address, std::uint64_t size) const;

    // Bytes of [address, address + size) of any PT_LOAD, as they stand in the file; fewer where the segment or the file
    // ends before.
    std::vector<std::uint8_t> bytes(std::uint64_t address, std::uint64_t size) const;

    // Address of the table of call frames (PT_GNU_EH_FRAME, .eh_frame_hdr); nullopt if there is none.
    std::optional<std::uint64_t> frame_table_address() const;

    // Address and size of the section of call frames (.eh_frame); nullopt if no section is called so. Programs that are
    // linked statically have it without the table.
    std::optional<std::pair<std::uint64_t, std::uint64_t>> frame_section() const;

    // The section headers, where symbols and debug information are found, lie behind the end of the file.
    bool is_cut_off() const;

    // File offset of an address inside an executable PT_LOAD.
    std::optional<std::uint64_t> file_offset(std::uint64_t address) const;

    // File offset of an address inside a writable or read-only PT_LOAD, as far as the file backs it.
    std::optional<std::uint64_t> data_offset(std::uint64_t address) const;

    // Address of a file offset inside an executable PT_LOAD.
    std::optional<std::uint64_t> address_of_offset(std::uint64_t file_offset) const;

    // End of the executable PT_LOAD that holds the address (file-backed part); nullopt outside.
    std::optional<std::uint64_t> segment_end(std::uint64_t address) const;

    // Name of the function that the PLT slot at this address jumps to (through .rela.plt / .rela.dyn and the GOT);
    // empty if the address is no PLT slot.
    std::string plt_target(std::uint64_t address) const;

    // Name of the function whose address the dynamic linker stores at this address of the GOT; empty if none.
    std::string got_target(std::uint64_t address) const;

    // Names of the functions of other files that this one calls, as its GOT has them.
    std::vector<std::string> imported_functions() const;

    // Address of a defined data object (STT_OBJECT) by its name; nullopt if there is none.
    std::optional<std::uint64_t> object_address(const std::string& name) const;

    // The USDT probes of the file, in the order of their notes. Damaged notes end the list.
    std::vector<UsdtNote> usdt_notes() const;

    // Path of the dynamic linker (PT_INTERP); empty for a static file.
    std::string interpreter() const;

private:
    struct Contents;
    explicit ElfFile(std::unique_ptr<Contents> contents);
    std::unique_ptr<Contents> contents_;
};

// Whether libelf may be let at an open file. It allocates for all the sections that a header claims, some 400 bytes
// each; linked files have hundreds of them.
inline constexpr std::uint64_t kMaxSections = 65'000;
bool has_few_sections(int descriptor);

// The C++ or Rust name of a symbol; the symbol itself when it is not mangled, or when its name would be longer than
// kMaxDemangledBytes or 128 times the symbol (a short mangled name can stand for one of gigabytes). GNU clone suffixes
// stay in square brackets as c++filt prints them: "f(int) [clone .cold]".
inline constexpr std::size_t kMaxDemangledBytes = 256 << 10;
std::string demangle(const std::string& symbol);

}  // namespace hostrange
