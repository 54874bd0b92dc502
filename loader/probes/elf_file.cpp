// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/elf_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "loader/probes/elf_contents.h"

namespace hostrange {

namespace {

// What a file may make this program allocate; the largest tables seen in practice stay well below.
constexpr std::uint64_t kMaxTableBytes = 1u << 30;
constexpr std::uint64_t kMaxNamesReadBytes = 1u << 30;  // looked at, of names
constexpr std::size_t kMaxNameBytes = 64 << 10;
constexpr std::uint64_t kMaxPathBytes = 4096;
constexpr std::size_t kMaxSegments =
    65536 / sizeof(Elf64_Phdr);  // the kernel's limit, load_elf_phdrs() of fs/binfmt_elf.c

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

}  // namespace

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

std::optional<std::uint64_t> ElfFile::object_address(const std::string& name) const {
    const auto found = contents_->object_address(contents_->symbol_table, name);
    return found ? found : contents_->object_address(contents_->dynamic_symbols, name);
}

}  // namespace hostrange
