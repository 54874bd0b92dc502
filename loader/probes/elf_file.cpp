// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/elf_file.h"

#include <fcntl.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace hostrange {

namespace {

// What a file may make this program allocate; the largest tables seen in practice stay well below.
constexpr std::uint64_t kMaxTableBytes = 1u << 30;
constexpr std::uint64_t kMaxNamesBytes = 1u << 29;      // kept
constexpr std::uint64_t kMaxNamesReadBytes = 1u << 30;  // looked at: most names stand in two tables
constexpr std::size_t kMaxNameBytes = 64 << 10;
constexpr std::uint64_t kMaxNoteBytes = 64 << 10;
constexpr std::uint64_t kMaxPathBytes = 4096;
constexpr std::size_t kMaxSegments =
    65536 / sizeof(Elf64_Phdr);  // the kernel's limit, load_elf_phdrs() of fs/binfmt_elf.c

class Descriptor {
public:
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor() {
        if (number_ >= 0) close(number_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
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

// What is wrong with the kind of file; empty for an x86-64 program or shared object.
std::string unsupported_kind(const GElf_Ehdr& header) {
    if (header.e_ident[EI_CLASS] != ELFCLASS64) return "a 32-bit file";
    if (header.e_ident[EI_DATA] != ELFDATA2LSB) return "a big-endian file";
    switch (header.e_machine) {
        case EM_X86_64:
            break;
        case EM_AARCH64:
            return "an arm64 file";
        case EM_RISCV:
            return "a RISC-V file";
        case EM_BPF:
            return "a BPF object";
        default:
            return "for machine " + std::to_string(header.e_machine);
    }
    switch (header.e_type) {
        case ET_DYN:
        case ET_EXEC:
            return "";
        case ET_REL:
            return "an unlinked object file";
        case ET_CORE:
            return "a core dump";
        default:
            return "an ELF file of type " + std::to_string(header.e_type);
    }
}

std::string_view without_version(std::string_view name) {
    const std::size_t at = name.find('@');
    return at == 0 ? name : name.substr(0, at);
}

// A function symbol whose name still lies in libelf's copy of the string table: most names stand in two tables, and
// only one copy of each is worth making.
struct RawFunction {
    std::string_view name;
    std::uint64_t address;
    std::uint64_t size;
    bool global;
};

}  // namespace

struct ElfFile::Contents {
    Contents(std::string path, int descriptor) : path(std::move(path)), file(descriptor) {}

    std::string path;
    Descriptor file;
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

// Empty if the bytes are not all there.
std::vector<std::uint8_t> ElfFile::Contents::bytes(std::uint64_t offset, std::uint64_t size) const {
    if (offset > file_size || size > file_size - offset) return {};
    std::vector<std::uint8_t> result(size);
    std::size_t done = 0;
    while (done < size) {
        const ssize_t count = pread(file.number(), result.data() + done, size - done, offset + done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return {};
        done += count;
    }
    return result;
}

const Segment* ElfFile::Contents::segment_of(std::uint64_t address) const {
    for (const Segment& segment : segments)
        if (address >= segment.address && address - segment.address < segment.size) return &segment;
    return nullptr;
}

const Segment* ElfFile::Contents::any_segment_of(std::uint64_t address) const {
    if (const Segment* executable = segment_of(address)) return executable;
    for (const Segment& segment : data_segments)
        if (address >= segment.address && address - segment.address < segment.size) return &segment;
    return nullptr;
}

// libelf checks a section against the file's size, but would allocate whatever a sparse file claims, and keeps each
// section that was asked for. Those of a sound file do not overlap, so that all together are no larger than the file.
Elf_Data* ElfFile::Contents::table(Elf_Scn* section) const {
    GElf_Shdr header;
    if (section == nullptr || gelf_getshdr(section, &header) == nullptr) return nullptr;
    if (header.sh_type == SHT_NOBITS || header.sh_size > kMaxTableBytes || header.sh_size > file_size) return nullptr;
    const std::size_t number = elf_ndxscn(section);
    if (!tables.contains(number)) {
        if (header.sh_size > file_size - tables_bytes) return nullptr;
        tables_bytes += header.sh_size;
        tables.insert(number);
    }
    return elf_getdata(section, nullptr);
}

Elf_Scn* ElfFile::Contents::section_named(std::string_view name, GElf_Shdr& header) const {
    std::size_t names = 0;
    if (elf_getshdrstrndx(elf.get(), &names) != 0) return nullptr;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(elf.get(), section)) != nullptr) {
        if (gelf_getshdr(section, &header) == nullptr) continue;
        const std::string_view rest = strings_from(names, header.sh_name);
        if (rest.size() > name.size() && rest.starts_with(name) && rest[name.size()] == '\0') return section;
    }
    return nullptr;
}

// The string table from this offset to its end.
std::string_view ElfFile::Contents::strings_from(std::size_t string_section, std::size_t offset) const {
    Elf_Scn* section = elf_getscn(elf.get(), string_section);
    GElf_Shdr header;
    if (section == nullptr || gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_STRTAB) return {};
    const Elf_Data* data = table(section);
    if (data == nullptr || data->d_buf == nullptr || offset >= data->d_size) return {};
    return std::string_view(static_cast<const char*>(data->d_buf), data->d_size).substr(offset);
}

// Strings that overlap make small tables with endless names: what all calls together look at is limited.
std::string_view ElfFile::Contents::name_in(std::string_view strings, std::size_t offset) const {
    if (offset >= strings.size()) return {};
    const std::string_view rest = strings.substr(offset, kMaxNameBytes);
    if (names_read_bytes + rest.size() > kMaxNamesReadBytes) return {};
    const std::size_t end = rest.find('\0');
    names_read_bytes += std::min(end, rest.size());
    return end == std::string_view::npos ? std::string_view{} : rest.substr(0, end);
}

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

std::string ElfFile::Contents::read_segments() {
    std::size_t count = 0;
    if (elf_getphdrnum(elf.get(), &count) != 0) return "its program headers cannot be read";
    if (count > kMaxSegments)
        return "it has " + std::to_string(count) + " program headers, and the kernel takes at most " +
               std::to_string(kMaxSegments);
    for (std::size_t i = 0; i < count; ++i) {
        GElf_Phdr header;
        if (gelf_getphdr(elf.get(), static_cast<int>(i), &header) == nullptr) return "its program headers are damaged";
        if (header.p_type == PT_NOTE && build_id.empty()) read_build_id(header);
        if (header.p_type == PT_INTERP && header.p_filesz <= kMaxPathBytes) {
            const std::vector<std::uint8_t> path = bytes(header.p_offset, header.p_filesz);
            interpreter.assign(path.begin(), std::find(path.begin(), path.end(), 0));
        }
        if (header.p_type == PT_GNU_EH_FRAME) frame_table = header.p_vaddr;
        if (header.p_type != PT_LOAD || header.p_offset >= file_size) continue;
        const std::uint64_t size = std::min(header.p_filesz, file_size - header.p_offset);
        if (size == 0 || header.p_vaddr + size < header.p_vaddr) continue;
        ((header.p_flags & PF_X) != 0 ? segments : data_segments).push_back({header.p_vaddr, header.p_offset, size});
    }
    return segments.empty() ? "it has no executable segment" : "";
}

void ElfFile::Contents::find_sections() {
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(elf.get(), section)) != nullptr) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr) continue;
        if (header.sh_type == SHT_SYMTAB && symbol_table == nullptr) symbol_table = section;
        if (header.sh_type == SHT_DYNSYM && dynamic_symbols == nullptr) dynamic_symbols = section;
    }
}

void ElfFile::Contents::add_functions(Elf_Scn* section, std::vector<RawFunction>& found) const {
    GElf_Shdr header;
    Elf_Data* data = table(section);
    if (data == nullptr || gelf_getshdr(section, &header) == nullptr) return;
    const std::size_t count = data->d_size / sizeof(Elf64_Sym);
    const std::string_view strings = strings_from(header.sh_link, 0);
    for (std::size_t i = 0; i < count; ++i) {
        GElf_Sym symbol;
        if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) return;
        if (GELF_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
        if (segment_of(symbol.st_value) == nullptr) continue;
        const std::string_view name = without_version(name_in(strings, symbol.st_name));
        if (name.empty()) continue;
        found.push_back({name, symbol.st_value, symbol.st_size, GELF_ST_BIND(symbol.st_info) != STB_LOCAL});
    }
}

void ElfFile::Contents::read_functions(const Contents* debug) {
    std::vector<RawFunction> found;
    add_functions(symbol_table, found);
    add_functions(dynamic_symbols, found);
    if (debug != nullptr) debug->add_functions(debug->symbol_table, found);
    functions.clear();
    names_bytes = 0;
    std::sort(found.begin(), found.end(), [](const RawFunction& a, const RawFunction& b) {
        return a.address != b.address ? a.address < b.address : a.name < b.name;
    });
    functions.reserve(found.size());
    for (const RawFunction& function : found) {
        FunctionSymbol* last = functions.empty() ? nullptr : &functions.back();
        if (last != nullptr && last->address == function.address && last->name == function.name) {
            last->global |= function.global;
            last->size = std::max(last->size, function.size);
            continue;
        }
        if (names_bytes + function.name.size() > kMaxNamesBytes) continue;
        names_bytes += function.name.size();
        functions.push_back({std::string(function.name), function.address, function.size, function.global});
    }
}

std::optional<std::uint64_t> ElfFile::Contents::object_address(Elf_Scn* section, const std::string& name) const {
    GElf_Shdr header;
    Elf_Data* data = table(section);
    if (data == nullptr || gelf_getshdr(section, &header) == nullptr) return std::nullopt;
    const std::size_t count = data->d_size / sizeof(Elf64_Sym);
    for (std::size_t i = 0; i < count; ++i) {
        GElf_Sym symbol;
        if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) return std::nullopt;
        if (GELF_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx == SHN_UNDEF) continue;
        const std::string_view strings = strings_from(header.sh_link, symbol.st_name);
        if (!strings.starts_with(name) || strings.size() == name.size()) continue;
        const char next = strings[name.size()];
        if (next == '\0' || next == '@') return symbol.st_value;
    }
    return std::nullopt;
}

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

std::string ElfFile::Contents::read() {
    struct stat status;
    if (fstat(file.number(), &status) != 0) return std::strerror(errno);
    if (!S_ISREG(status.st_mode)) return "it is no regular file";
    file_size = status.st_size;
    elf_version(EV_CURRENT);
    if (!has_few_sections(file.number())) return "it has more than " + std::to_string(kMaxSections) + " sections";
    elf.reset(elf_begin(file.number(), ELF_C_READ, nullptr));
    if (!elf || elf_kind(elf.get()) != ELF_K_ELF) return "it is no ELF file";
    GElf_Ehdr header;
    if (gelf_getehdr(elf.get(), &header) == nullptr) return "its ELF header is damaged";
    const std::string kind = unsupported_kind(header);
    if (!kind.empty()) return "it is " + kind + ": only x86-64 programs and shared objects can be probed";
    const std::string problem = read_segments();
    if (!problem.empty()) return problem;
    find_sections();
    read_functions(nullptr);
    return "";
}

bool has_few_sections(int descriptor) {
    Elf64_Ehdr header;
    if (pread(descriptor, &header, sizeof header, 0) != sizeof header) return true;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shoff == 0) return true;
    if (header.e_shnum != 0) return header.e_shnum <= kMaxSections;
    // The number is too large for its field and stands in the first section.
    Elf64_Shdr first;
    if (pread(descriptor, &first, sizeof first, static_cast<off_t>(header.e_shoff)) != sizeof first) return true;
    return first.sh_size <= kMaxSections;
}

ElfFile::ElfFile(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
ElfFile::~ElfFile() = default;

std::unique_ptr<ElfFile> ElfFile::open(const std::string& path, std::string& error) {
    // Not blocking: the path may name a FIFO.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        error = path + ": " + std::strerror(errno);
        return nullptr;
    }
    auto contents = std::make_unique<Contents>(path, descriptor);
    const std::string problem = contents->read();
    if (!problem.empty()) {
        error = path + ": " + problem;
        return nullptr;
    }
    return std::unique_ptr<ElfFile>(new ElfFile(std::move(contents)));
}

const std::string& ElfFile::path() const {
    return contents_->path;
}

std::string ElfFile::build_id() const {
    return contents_->build_id;
}

bool ElfFile::add_symbols_of(const std::string& debug_path) {
    const int descriptor = ::open(debug_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return false;
    Contents debug(debug_path, descriptor);
    struct stat status;
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    debug.file_size = status.st_size;
    if (!has_few_sections(descriptor)) return false;
    debug.elf.reset(elf_begin(descriptor, ELF_C_READ, nullptr));
    GElf_Ehdr header;
    if (!debug.elf || elf_kind(debug.elf.get()) != ELF_K_ELF || gelf_getehdr(debug.elf.get(), &header) == nullptr ||
        !unsupported_kind(header).empty())
        return false;
    // Its code is in the other file.
    debug.segments = contents_->segments;
    debug.find_sections();
    if (debug.symbol_table == nullptr) return false;
    contents_->read_functions(&debug);
    contents_->has_debug_symbols = true;
    return true;
}

bool ElfFile::has_symbol_table() const {
    return contents_->symbol_table != nullptr || contents_->has_debug_symbols;
}

const std::vector<FunctionSymbol>& ElfFile::functions() const {
    return contents_->functions;
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

std::string ElfFile::interpreter() const {
    return contents_->interpreter;
}

std::vector<std::uint8_t> ElfFile::code(std::uint64_t address, std::uint64_t size) const {
    const Segment* segment = contents_->segment_of(address);
    if (segment == nullptr || size > segment->size - (address - segment->address)) return {};
    return contents_->bytes(segment->offset + (address - segment->address), size);
}

std::vector<std::uint8_t> ElfFile::bytes(std::uint64_t address, std::uint64_t size) const {
    const Segment* segment = contents_->any_segment_of(address);
    if (segment == nullptr) return {};
    const std::uint64_t at = address - segment->address;
    return contents_->bytes(segment->offset + at, std::min(size, segment->size - at));
}

std::optional<std::uint64_t> ElfFile::frame_table_address() const {
    return contents_->frame_table;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> ElfFile::frame_section() const {
    GElf_Shdr header;
    if (contents_->section_named(".eh_frame", header) == nullptr) return std::nullopt;
    return std::pair(header.sh_addr, header.sh_size);
}

bool ElfFile::is_cut_off() const {
    GElf_Ehdr header;
    if (gelf_getehdr(contents_->elf.get(), &header) == nullptr) return false;
    const std::uint64_t size = std::uint64_t{header.e_shnum} * header.e_shentsize;
    return header.e_shoff != 0 &&
           (header.e_shoff > contents_->file_size || size > contents_->file_size - header.e_shoff);
}

std::optional<std::uint64_t> ElfFile::address_of_offset(std::uint64_t file_offset) const {
    for (const Segment& segment : contents_->segments)
        if (file_offset >= segment.offset && file_offset - segment.offset < segment.size)
            return segment.address + (file_offset - segment.offset);
    return std::nullopt;
}

std::optional<std::uint64_t> ElfFile::file_offset(std::uint64_t address) const {
    const Segment* segment = contents_->segment_of(address);
    if (segment == nullptr) return std::nullopt;
    return segment->offset + (address - segment->address);
}

std::optional<std::uint64_t> ElfFile::data_offset(std::uint64_t address) const {
    const Segment* segment = contents_->any_segment_of(address);
    if (segment == nullptr) return std::nullopt;
    return segment->offset + (address - segment->address);
}

std::optional<std::uint64_t> ElfFile::segment_end(std::uint64_t address) const {
    const Segment* segment = contents_->segment_of(address);
    if (segment == nullptr) return std::nullopt;
    return segment->address + segment->size;
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

std::optional<std::uint64_t> ElfFile::object_address(const std::string& name) const {
    const auto found = contents_->object_address(contents_->symbol_table, name);
    return found ? found : contents_->object_address(contents_->dynamic_symbols, name);
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
