// SPDX-License-Identifier: Apache-2.0
// ELF files, through everything that is asked of one before a probe is placed: with the default map, and with one that
// wants every function.
#include <sys/mman.h>
#include <unistd.h>

#include <numeric>
#include <string>

#include "loader/probes/elf_file.h"
#include "loader/probes/markers.h"
#include "loader/probes/plan.h"
#include "loader/probes/probe_map.h"
#include "tests/fuzz/fuzzer.h"

namespace {

using hostrange::FilePlan;
using hostrange::MappedFile;
using hostrange::ProbeMap;

constexpr char kEveryFunction[] =
    "version = 1\n"
    "[targets.any]\n"
    "files = ['*']\n"
    "[[ranges]]\n"
    "name = 'every.function'\n"
    "target = 'any'\n"
    "functions = ['.']\n"
    "[[ranges]]\n"
    "name = 'between'\n"
    "target = 'any'\n"
    "begin = [{ entry = 'a' }, { offset = 0x1010 }]\n"
    "end = [{ return = 'e' }]\n"
    "[[ranges]]\n"
    "name = 'place'\n"
    "target = 'any'\n"
    "places = [{ offset = 0x1000 }]\n";

void check(const FilePlan& plan, std::size_t file_size) {
    for (const hostrange::Site& site : plan.sites) {
        require(site.function < plan.functions.size(), "a site belongs to a function of the plan");
        require(site.file_offset < file_size, "a site lies in the file");
    }
    require(plan.problem.empty() || plan.sites.empty(), "a file that cannot be read has no sites");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const ProbeMap default_map = hostrange::load_probe_map(HOSTRANGE_SOURCE_DIR "/probe_map.toml");
    static const ProbeMap every_function = hostrange::parse_probe_map(kEveryFunction, "every function");
    static const int descriptor = memfd_create("elf_file_fuzzer", MFD_CLOEXEC);
    require(ftruncate(descriptor, 0) == 0, "the file can be emptied");
    require(pwrite(descriptor, data, size, 0) == static_cast<ssize_t>(size), "the file can be written");

    MappedFile file;
    file.path = "/usr/lib/libminiops.so";
    file.base_name = "libminiops.so";
    file.open_path = "/proc/self/fd/" + std::to_string(descriptor);
    std::string error;
    const auto elf = hostrange::ElfFile::open(file.open_path, error);
    require((elf == nullptr) == !error.empty(), "a file that cannot be read has an error");
    if (elf == nullptr) return 0;
    elf->interpreter();
    elf->object_address("_r_debug");
    for (const hostrange::FunctionSymbol& function : elf->functions()) {
        require(elf->file_offset(function.address).has_value(), "a function lies in the file");
        elf->plt_target(function.address);
    }
    // The default map's expressions are compiled for each file, which takes longer than all the rest: only for some.
    constexpr unsigned kInputsPerDefaultMap = 8;
    if (std::accumulate(data, data + size, 0u) % kInputsPerDefaultMap == 0)
        check(hostrange::plan_file(default_map, file, {}), size);
    check(hostrange::plan_file(every_function, file, {}), size);
    check(hostrange::plan_exception_landing(file, {}), size);
    const hostrange::KernelNops kernel{.optimises_nop5 = true, .emulates_all = true};
    for (const hostrange::MarkerSite& site : hostrange::plan_markers(*elf, kernel).sites) {
        require(site.file_offset < size, "a marker lies in the file");
        require(site.semaphore_offset < size, "a marker's semaphore lies in the file");
    }
    return 0;
}
