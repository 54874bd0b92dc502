// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/elf_file.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

namespace hostrange {
namespace {

const std::string kFunctions = HOSTRANGE_FIXTURES "/libfixture_functions.so";
const std::string kFunctionsIbt = HOSTRANGE_FIXTURES "/libfixture_functions_ibt.so";
const std::string kLibrary = HOSTRANGE_FIXTURES "/libfixture_library.so";
const std::string kStripped = HOSTRANGE_FIXTURES "/libfixture_stripped.so";

using Bytes = std::vector<char>;

Bytes read_bytes(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(stream), {});
}

// A file that is gone with the test.
class TemporaryFile {
public:
    TemporaryFile() {
        path_ = testing::TempDir() + "elf_file_test_XXXXXX";
        descriptor_ = mkstemp(path_.data());
    }
    ~TemporaryFile() {
        close(descriptor_);
        unlink(path_.c_str());
    }
    void write(const Bytes& bytes, std::size_t size) const {
        ASSERT_EQ(ftruncate(descriptor_, 0), 0);
        ASSERT_EQ(pwrite(descriptor_, bytes.data(), size, 0), static_cast<ssize_t>(size));
    }
    const std::string& path() const { return path_; }

private:
    std::string path_;
    int descriptor_;
};

std::unique_ptr<ElfFile> open_or_fail(const std::string& path) {
    std::string error;
    std::unique_ptr<ElfFile> file = ElfFile::open(path, error);
    EXPECT_NE(file, nullptr) << error;
    return file;
}

const FunctionSymbol* find(const ElfFile& file, const std::string& name) {
    const auto& functions = file.functions();
    const auto found =
        std::find_if(functions.begin(), functions.end(), [&](const FunctionSymbol& f) { return f.name == name; });
    return found == functions.end() ? nullptr : &*found;
}

// Everything a plan asks of a file.
void ask_everything(const std::string& path) {
    std::string error;
    const std::unique_ptr<ElfFile> file = ElfFile::open(path, error);
    if (!file) {
        EXPECT_FALSE(error.empty());
        return;
    }
    file->build_id();
    file->interpreter();
    file->object_address("no_such_object");
    for (const FunctionSymbol& function : file->functions()) {
        const auto offset = file->file_offset(function.address);
        const auto end = file->segment_end(function.address);
        ASSERT_TRUE(offset && end);
        ASSERT_GT(*end, function.address);
        file->plt_target(function.address);
        file->got_target(function.address);
        const auto code = file->code(function.address, function.size);
        ASSERT_TRUE(code.empty() || code.size() == function.size);
    }
}

TEST(ElfFile, ReadsFunctionsByAddress) {
    const auto file = open_or_fail(kFunctions);
    EXPECT_TRUE(file->has_symbol_table());
    const FunctionSymbol* function = find(*file, "one_jump");
    ASSERT_NE(function, nullptr);
    EXPECT_EQ(function->size, 2u);
    EXPECT_TRUE(function->global);
    EXPECT_EQ(file->code(function->address, 1), std::vector<std::uint8_t>{0xeb});
    ASSERT_NE(find(*file, "with_cold_part.cold"), nullptr);
    EXPECT_FALSE(find(*file, "with_cold_part.cold")->global);
    EXPECT_TRUE(std::is_sorted(file->functions().begin(), file->functions().end(),
                               [](const auto& a, const auto& b) { return a.address < b.address; }));
    // In .symtab and .dynsym, but listed once.
    EXPECT_EQ(std::count_if(file->functions().begin(), file->functions().end(),
                            [](const FunctionSymbol& f) { return f.name == "alias_a"; }),
              1);
    EXPECT_EQ(find(*file, "alias_a")->address, find(*file, "alias_b")->address);
    EXPECT_EQ(find(*file, "imported_function"), nullptr);
}

TEST(ElfFile, ReadsExportedFunctionsOfStrippedFiles) {
    const auto file = open_or_fail(kStripped);
    EXPECT_FALSE(file->has_symbol_table());
    EXPECT_NE(find(*file, "_ZN6sample7catchesEi"), nullptr);
    EXPECT_EQ(find(*file, "_ZN6sample7catchesEi.cold"), nullptr);
}

TEST(ElfFile, TakesVersionsOffNames) {
    const auto file = open_or_fail("/lib/x86_64-linux-gnu/libc.so.6");
    EXPECT_NE(find(*file, "malloc"), nullptr);
    for (const FunctionSymbol& function : file->functions())
        EXPECT_EQ(function.name.find('@'), std::string::npos) << function.name;
}

TEST(ElfFile, MapsAddressesToOffsets) {
    const auto file = open_or_fail(kFunctions);
    const FunctionSymbol* function = find(*file, "entry_push");
    const Bytes bytes = read_bytes(kFunctions);
    const auto offset = file->file_offset(function->address);
    ASSERT_TRUE(offset);
    EXPECT_EQ(static_cast<unsigned char>(bytes.at(*offset)), 0x55);
    EXPECT_FALSE(file->file_offset(0));
    const std::uint64_t end = file->segment_end(function->address).value();
    EXPECT_FALSE(file->file_offset(end));
    EXPECT_TRUE(file->code(function->address, end - function->address + 1).empty());
    EXPECT_EQ(file->code(function->address, end - function->address).size(), end - function->address);
    EXPECT_TRUE(file->code(function->address, ~std::uint64_t{0}).empty());
}

TEST(ElfFile, KnowsBuildIdAndInterpreter) {
    const auto library = open_or_fail(kFunctions);
    EXPECT_EQ(library->build_id().size(), 40u);
    EXPECT_EQ(library->build_id().find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_EQ(library->interpreter(), "");
    EXPECT_EQ(open_or_fail("/proc/self/exe")->interpreter(), "/lib64/ld-linux-x86-64.so.2");
}

TEST(ElfFile, FindsDataObjects) {
    const auto file = open_or_fail(kLibrary);
    EXPECT_TRUE(file->object_address("_ZTVN6sample6WidgetE"));
    EXPECT_FALSE(file->object_address("_ZN6sample7catchesEi"));
}

TEST(ElfFile, NamesPltTargets) {
    for (const std::string& path : {kFunctions, kFunctionsIbt}) {
        const auto file = open_or_fail(path);
        for (const auto& [function, distance, expected] :
             {std::tuple{"jump_through_plt", 3, "imported_function"},
              std::tuple{"jump_through_lazy_plt", 0, "lazily_imported_function"}}) {
            const std::uint64_t jump = find(*file, function)->address + distance;
            const auto code = file->code(jump, 5);
            ASSERT_EQ(code.at(0), 0xe9);
            std::int32_t displacement;
            std::memcpy(&displacement, &code[1], sizeof displacement);
            EXPECT_EQ(file->plt_target(jump + 5 + displacement), expected) << path;
        }
        EXPECT_EQ(file->plt_target(find(*file, "one_ret")->address), "");
        EXPECT_EQ(file->plt_target(0), "");
    }
}

TEST(ElfFile, SaysWhatIsWrong) {
    std::string error;
    EXPECT_EQ(ElfFile::open("/no/such/file", error), nullptr);
    EXPECT_EQ(error, "/no/such/file: No such file or directory");
    EXPECT_EQ(ElfFile::open("/", error), nullptr);
    EXPECT_EQ(error, "/: it is no regular file");

    const TemporaryFile file;
    const auto refused = [&](std::size_t at, char value) {
        Bytes bytes = read_bytes(kFunctions);
        bytes.at(at) = value;
        file.write(bytes, bytes.size());
        EXPECT_EQ(ElfFile::open(file.path(), error), nullptr);
        return error.substr(file.path().size());
    };
    EXPECT_EQ(refused(0, 'X'), ": it is no ELF file");
    EXPECT_EQ(refused(offsetof(Elf64_Ehdr, e_machine), char(EM_AARCH64)),
              ": it is an arm64 file: only x86-64 programs and shared objects can be probed");
    EXPECT_EQ(refused(offsetof(Elf64_Ehdr, e_type), ET_REL),
              ": it is an unlinked object file: only x86-64 programs and shared objects can be probed");
    EXPECT_EQ(refused(offsetof(Elf64_Ehdr, e_type), ET_CORE),
              ": it is a core dump: only x86-64 programs and shared objects can be probed");
    file.write({}, 0);
    EXPECT_EQ(ElfFile::open(file.path(), error), nullptr);
}

TEST(ElfFile, DoesNotWaitForAFifo) {
    const std::string path = testing::TempDir() + "elf_file_test_fifo" + std::to_string(getpid());
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    std::string error;
    EXPECT_EQ(ElfFile::open(path, error), nullptr);
    unlink(path.c_str());
}

// The sanitizers of a Debug build make these two say more than "did not crash".
TEST(ElfFile, SurvivesTruncation) {
    const TemporaryFile file;
    for (const std::string& path : {kFunctions, kLibrary}) {
        const Bytes bytes = read_bytes(path);
        for (std::size_t size = 0; size < bytes.size(); size += 64) {
            file.write(bytes, size);
            ask_everything(file.path());
        }
    }
}

TEST(ElfFile, SurvivesDamage) {
    const TemporaryFile file;
    for (const std::string& path : {kFunctions, kLibrary}) {
        const Bytes original = read_bytes(path);
        const std::size_t section_headers = reinterpret_cast<const Elf64_Ehdr*>(original.data())->e_shoff;
        std::mt19937 random(1);
        for (int round = 0; round < 2000; ++round) {
            Bytes bytes = original;
            // Headers are where damage hurts most; elsewhere it is mostly code.
            const std::size_t places[] = {random() % 1024,
                                          section_headers + random() % (original.size() - section_headers),
                                          random() % original.size()};
            for (const std::size_t at : places) bytes[at] ^= static_cast<char>(1u << random() % 8);
            if (round % 4 == 0) bytes[places[1]] = '\xff';
            file.write(bytes, bytes.size());
            ask_everything(file.path());
        }
    }
}

// A file that is cut short while it is open: its bytes are gone, and that is all.
TEST(ElfFile, SurvivesTruncationWhileOpen) {
    const TemporaryFile copy;
    const Bytes bytes = read_bytes(kFunctions);
    copy.write(bytes, bytes.size());
    const auto file = open_or_fail(copy.path());
    copy.write(bytes, 64);
    EXPECT_TRUE(file->code(file->functions().front().address, 1).empty());
    EXPECT_EQ(file->plt_target(file->functions().front().address), "");
}

// Damage by the thousand: what is looked at in each of many places must not be the whole file.

Elf64_Ehdr header_of(const Bytes& bytes) {
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    return header;
}

template <typename Entry>
std::vector<Entry> entries_of(const Bytes& bytes, std::uint64_t offset, std::size_t count) {
    std::vector<Entry> entries(count);
    std::memcpy(entries.data(), &bytes.at(offset), count * sizeof(Entry));
    return entries;
}

// Appends a table to the file and says where it lies.
template <typename Entry>
std::uint64_t append(Bytes& bytes, const std::vector<Entry>& entries) {
    bytes.resize((bytes.size() + 15) / 16 * 16);
    const std::uint64_t offset = bytes.size();
    const char* start = reinterpret_cast<const char*>(entries.data());
    bytes.insert(bytes.end(), start, start + entries.size() * sizeof(Entry));
    return offset;
}

std::size_t find_section(const std::vector<Elf64_Shdr>& sections, std::uint32_t type) {
    return std::find_if(sections.begin(), sections.end(), [&](const auto& one) { return one.sh_type == type; }) -
           sections.begin();
}

TEST(ElfFile, RefusesMoreProgramHeadersThanTheKernel) {
    Bytes bytes = read_bytes(kFunctions);
    Elf64_Ehdr header = header_of(bytes);
    auto segments = entries_of<Elf64_Phdr>(bytes, header.e_phoff, header.e_phnum);
    segments.resize(1171, segments.at(0));
    header.e_phoff = append(bytes, segments);
    header.e_phnum = segments.size();
    std::memcpy(bytes.data(), &header, sizeof header);
    const TemporaryFile file;
    file.write(bytes, bytes.size());
    std::string error;
    EXPECT_EQ(ElfFile::open(file.path(), error), nullptr);
    EXPECT_EQ(error, file.path() + ": it has 1171 program headers, and the kernel takes at most 1170");
}

TEST(ElfFile, HoldsNoMoreTablesThanTheFileIsLarge) {
    Bytes bytes = read_bytes(kFunctions);
    Elf64_Ehdr header = header_of(bytes);
    auto sections = entries_of<Elf64_Shdr>(bytes, header.e_shoff, header.e_shnum);
    constexpr std::size_t kCopies = 2000;
    Elf64_Shdr relocations{};
    relocations.sh_type = SHT_RELA;
    relocations.sh_size = kCopies * sizeof(Elf64_Rela);
    relocations.sh_addralign = 8;
    relocations.sh_entsize = sizeof(Elf64_Rela);
    relocations.sh_link = find_section(sections, SHT_DYNSYM);
    sections.insert(sections.end(), kCopies, relocations);
    header.e_shoff = append(bytes, sections);
    header.e_shnum = sections.size();
    std::memcpy(bytes.data(), &header, sizeof header);
    const TemporaryFile copy;
    copy.write(bytes, bytes.size());
    const auto file = open_or_fail(copy.path());
    const auto held_bytes = [] {
        const struct mallinfo2 memory = mallinfo2();
        return memory.uordblks + memory.hblkhd;
    };
    const std::size_t before = held_bytes();
    EXPECT_EQ(file->got_target(0), "");
    EXPECT_LT(held_bytes() - before, 4 * bytes.size());
}

// 200,000 names of 32 KiB on average, in a table of 64 KiB: sorting them would take minutes.
TEST(ElfFile, LooksAtNoMoreNamesThanItCanHold) {
    Bytes bytes = read_bytes(kFunctions);
    Elf64_Ehdr header = header_of(bytes);
    auto sections = entries_of<Elf64_Shdr>(bytes, header.e_shoff, header.e_shnum);
    Elf64_Shdr& table = sections.at(find_section(sections, SHT_SYMTAB));
    Elf64_Shdr& strings = sections.at(table.sh_link);
    const auto old_symbols = entries_of<Elf64_Sym>(bytes, table.sh_offset, table.sh_size / sizeof(Elf64_Sym));
    const auto function = std::find_if(old_symbols.begin(), old_symbols.end(), [](const Elf64_Sym& symbol) {
        return ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
    });
    ASSERT_NE(function, old_symbols.end());
    constexpr std::size_t kNameBytes = 65000;
    std::vector<char> names(kNameBytes, 'a');
    names.push_back('\0');
    std::vector<Elf64_Sym> symbols(200'000, *function);
    for (std::size_t i = 0; i < symbols.size(); ++i) symbols[i].st_name = i % kNameBytes;
    strings.sh_offset = append(bytes, names);
    strings.sh_size = names.size();
    table.sh_offset = append(bytes, symbols);
    table.sh_size = symbols.size() * sizeof(Elf64_Sym);
    header.e_shoff = append(bytes, sections);
    std::memcpy(bytes.data(), &header, sizeof header);
    const TemporaryFile copy;
    copy.write(bytes, bytes.size());
    const auto file = open_or_fail(copy.path());
    std::size_t names_bytes = 0;
    for (const FunctionSymbol& one : file->functions()) names_bytes += one.name.size();
    EXPECT_GT(names_bytes, 0u);
    EXPECT_LE(names_bytes, std::size_t{1} << 29);
}

TEST(Demangle, KeepsNamesThatAreNotMangled) {
    for (const char* name : {"", "main", "foo.cold", "_start", "_Z", "_Zx", "_R", "_ZN6sample7catches"})
        EXPECT_EQ(demangle(name), name);
}

TEST(Demangle, PrintsCloneSuffixesLikeCxxfilt) {
    EXPECT_EQ(demangle("_Z3fooi"), "foo(int)");
    EXPECT_EQ(demangle("_Z3fooi.cold"), "foo(int) [clone .cold]");
    EXPECT_EQ(demangle("_Z3fooi.constprop.0.isra.0"), "foo(int) [clone .constprop.0] [clone .isra.0]");
    EXPECT_EQ(demangle("_Z3fooi.lto_priv.12.cold"), "foo(int) [clone .lto_priv.12] [clone .cold]");
    EXPECT_EQ(demangle("_Z3fooi.part.0"), "foo(int) [clone .part.0]");
    EXPECT_EQ(demangle("_Z3fooi.llvm.1234"), "foo(int) [clone .llvm.1234]");
    EXPECT_EQ(demangle("_Z6taggedB4betaN1A3BarB2v2E"), "tagged[abi:beta](A::Bar[abi:v2])");
}

TEST(Demangle, KnowsBothSchemesOfRust) {
    EXPECT_EQ(demangle("_RNvC6_123foo3bar"), "123foo::bar");
    EXPECT_EQ(demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
}

// __cxa_demangle() gives up on names of more than 1,024 bytes, which templates easily exceed.
TEST(Demangle, KnowsLongNames) {
    std::string symbol = "_Z1f";
    for (int i = 0; i < 400; ++i) symbol += "N5space4nameE";
    const std::string name = demangle(symbol);
    EXPECT_TRUE(name.starts_with("f(space::name, space::name, "));
    EXPECT_EQ(name.size(), 3 + 400 * std::string("space::name, ").size() - 2);
}

// Each of these substitutions doubles the name: 34 of them stand for 16 GiB.
TEST(Demangle, GivesUpOnExplodingNames) {
    std::string symbol = "_Z1f1AIiiE";
    for (int i = 0; i < 34; ++i) {
        const std::string previous = std::string("S") + "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i] + "_";
        symbol += "S_I" + previous + previous + "E";
    }
    EXPECT_EQ(demangle(symbol), symbol);
}

// The first of those links make names that are longer and longer for symbols that are hardly so.
TEST(Demangle, LimitsNamesByTheirSymbols) {
    std::string symbol = "_Z1f1AIiiE";
    EXPECT_EQ(demangle(symbol), "f(A<int, int>)");
    std::size_t demangled = 0;
    for (int i = 0; i < 20; ++i) {
        const std::string previous = std::string("S") + "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i] + "_";
        symbol += "S_I" + previous + previous + "E";
        const std::string name = demangle(symbol);
        if (name == symbol) continue;
        ++demangled;
        EXPECT_LE(name.size(), 128 * symbol.size());
    }
    EXPECT_GE(demangled, 5u);
    EXPECT_LT(demangled, 15u);
}

TEST(Demangle, SurvivesDeepNesting) {
    for (const char* opening : {"P", "N1A", "FvP", "I", "A_", "X", "DpT", "1AI", "L", "U1x", "M"}) {
        std::string symbol = "_Z1f";
        while (symbol.size() < (15 << 10)) symbol += opening;
        demangle(symbol);
        demangle(symbol + "i");
        demangle("_R" + symbol.substr(2));
    }
}

// libelf would take 400 MB for these.
TEST(ElfFile, RefusesAMillionSections) {
    std::ifstream stream(HOSTRANGE_FIXTURES "/libfixture_functions.so", std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(stream), {});
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    header.e_shnum = 0;
    Elf64_Shdr first;
    std::memcpy(&first, bytes.data() + header.e_shoff, sizeof first);
    first.sh_size = 1'000'000;
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + header.e_shoff, &first, sizeof first);
    const std::string path = testing::TempDir() + "million_sections_" + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << bytes;
    std::string error;
    EXPECT_EQ(ElfFile::open(path, error), nullptr);
    EXPECT_NE(error.find("more than 65000 sections"), std::string::npos) << error;
    unlink(path.c_str());
}

}  // namespace
}  // namespace hostrange
